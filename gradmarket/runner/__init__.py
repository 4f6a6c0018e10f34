"""The runner of graphdoc, with a market's steps and ready architectures.

Importing it imports no torch.
"""

from graphdoc.runner.documents import DocumentInfo
from graphdoc.runner.parent import Runner
from graphdoc.runner.reader import Reader
from graphdoc.runner.settings import RunnerSettings

__all__ = ["DocumentInfo", "Reader", "Runner", "RunnerSettings"]
