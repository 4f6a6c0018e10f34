from gradmarket.sdk import Market as Market
from gradmarket.sdk import TrainingJob as TrainingJob
