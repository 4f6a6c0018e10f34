from gradmarket.sdk import TrainingJob as TrainingJob
from gradmarket.sdk import Market as Market
