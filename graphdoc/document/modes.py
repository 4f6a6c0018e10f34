"""Whether a module asks if it is in training: where nobody asks, the traces of training and of evaluation are one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


class _Asked:
    """Stands for `training` of all modules, and tells who reads it."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def __get__(self, module: Any, _owner: Any) -> Any:
        if module is None:
            return self
        self._tell()
        return vars(module)["training"]

    def __set__(self, module: Any, value: bool) -> None:
        vars(module)["training"] = value


@contextmanager
def watch_mode_reads(tell: Callable[[], None]) -> Iterator[None]:
    """Inside, whenever a module's mode is asked for, it is told."""
    nn.Module.training = _Asked(tell)  # type: ignore[assignment]
    try:
        yield
    finally:
        del nn.Module.training


def knows_its_mode(module: nn.Module) -> bool:
    """Whether a part does something of its own when the mode is set: it may be another part then, without asking."""
    return any(type(part).train is not nn.Module.train for part in module.modules())
