from gradmarket.sdk import Job as Job
from gradmarket.sdk import Market as Market
