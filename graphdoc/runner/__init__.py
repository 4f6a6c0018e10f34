"""The runner: warm child processes that run strangers' models and read strangers' data.

Importing it imports no torch.
"""

from graphdoc.runner.documents import DocumentInfo
from graphdoc.runner.parent import Runner
from graphdoc.runner.reader import Reader
from graphdoc.runner.settings import RunnerSettings

__all__ = ["DocumentInfo", "Reader", "Runner", "RunnerSettings"]
