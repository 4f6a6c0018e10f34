"""`from gradmarket import Market, Job`: a researcher's own door. It needs torch, so it is imported when it is used."""

from importlib import import_module
from typing import Any, Final

DOOR: Final = ("Market", "Job")


def __getattr__(name: str) -> Any:
    if name in DOOR:
        return getattr(import_module("gradmarket.sdk"), name)
    raise AttributeError(f"module 'gradmarket' has no attribute {name!r}")
