from gradmarket.sdk import Images as Images
from gradmarket.sdk import Market as Market
from gradmarket.sdk import Text as Text
from gradmarket.sdk import TrainingJob as TrainingJob
