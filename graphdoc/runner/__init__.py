"""The runner: warm child processes that run strangers' documents and read strangers' arrays.

Importing it imports no torch.
"""

from graphdoc.runner.document_runner import DocumentRunner
from graphdoc.runner.reader import Reader
from graphdoc.runner.settings import RunnerSettings

__all__ = ["DocumentRunner", "Reader", "RunnerSettings"]
