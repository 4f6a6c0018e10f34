"""The market from Python: any module, loss and dataset; a training script needs about ten lines to hire workers."""

from gradmarket.sdk.job_handle import TrainingJob
from gradmarket.sdk.market_handle import Market

__all__ = ["Market", "TrainingJob"]
