"""The runner of a market: graphdoc's, whose child computes a market's steps and publishes its ready architectures too.

Importing it imports no torch.
"""

from gradmarket.runner.market_runner import DocumentInfo, Runner
from graphdoc.runner import Reader, RunnerSettings

__all__ = ["DocumentInfo", "Reader", "Runner", "RunnerSettings"]
