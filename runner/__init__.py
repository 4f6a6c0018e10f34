"""The runner: warm children that run a stranger's model and read a stranger's data. Importing this imports no torch."""

from gradmarket.runner.documents import DocumentInfo
from gradmarket.runner.parent import Runner
from gradmarket.runner.reader import Reader
from gradmarket.runner.settings import RunnerSettings

__all__ = ["DocumentInfo", "Reader", "Runner", "RunnerSettings"]
