"""The market from Python: any module, loss and dataset; a training script needs about ten lines to hire workers."""

from gradmarket.data.image_folders import Images
from gradmarket.data.token_rows import Text
from gradmarket.sdk.job_handle import TrainingJob
from gradmarket.sdk.market_handle import Market

__all__ = ["Images", "Market", "Text", "TrainingJob"]
