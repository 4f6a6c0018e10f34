"""The market from Python: any module, loss and dataset; ten lines from a script that trains alone to one that hires."""

from gradmarket.sdk.job import Job
from gradmarket.sdk.market import Market

__all__ = ["Job", "Market"]
