"""Libraries that few tests compare with, imported at their first use: every process of a run collects every test."""

import importlib
from typing import Any


class LateModule:
    """A module's public names. Pytest, which collects a module's globals, asks each for private ones."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
