"""Libraries that few tests compare with, imported at their first use: every process of a run collects every test."""

import importlib
from typing import Any


class LateModule:
    """A module's public names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
