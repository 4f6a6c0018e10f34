"""The runner: warm child processes that run strangers' models and read strangers' data.

Importing it imports no torch.
"""

from gradmarket.runner.documents import DocumentInfo
from gradmarket.runner.parent import Runner
from gradmarket.runner.reader import Reader
from gradmarket.runner.settings import RunnerSettings

__all__ = ["DocumentInfo", "Reader", "Runner", "RunnerSettings"]
