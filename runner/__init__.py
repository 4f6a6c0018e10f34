"""The runner: a warm child process that runs a stranger's graph document. Importing this does not import torch."""

from gradmarket.runner.parent import DocumentInfo, Runner
from gradmarket.runner.settings import RunnerSettings

__all__ = ["DocumentInfo", "Runner", "RunnerSettings"]
