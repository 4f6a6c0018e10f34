"""`from gradmarket import Market`, and the others of PUBLIC: a researcher's imports. They need torch, on first use."""

from importlib import import_module
from typing import Any, Final

PUBLIC: Final = ("Images", "Market", "Text", "TrainingJob")


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        try:
            return getattr(import_module("gradmarket.sdk"), name)
        except ModuleNotFoundError as missing:
            message = f"{name} needs {missing.name}, which is not installed: pip install 'gradmarket[sdk]'"
            raise ImportError(message, name=missing.name) from None
    raise AttributeError(f"module 'gradmarket' has no attribute {name!r}")
