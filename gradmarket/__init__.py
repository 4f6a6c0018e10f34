"""`from gradmarket import Market, TrainingJob`: the researcher's imports. They need torch, imported on first use."""

from importlib import import_module
from typing import Any, Final

PUBLIC: Final = ("Market", "TrainingJob")


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(import_module("gradmarket.sdk"), name)
    raise AttributeError(f"module 'gradmarket' has no attribute {name!r}")
