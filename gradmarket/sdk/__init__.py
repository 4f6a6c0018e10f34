"""The market from Python: any module, loss and dataset; ten lines from a script that trains alone to one that hires."""

from gradmarket.sdk.job_handle import TrainingJob
from gradmarket.sdk.market_handle import Market

__all__ = ["Market", "TrainingJob"]
