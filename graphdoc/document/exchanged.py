"""Exchanges a function of torch's while a module is traced: for who traces alone, other threads call torch's own.

Where two trace at a time, functions may not come back in order: whoever publishes in threads takes turns (sdk.model).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

_TRACES: Final = ContextVar("traces", default=False)


@contextmanager
def exchange_function(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Inside, `function` stands for the owner's function of this name."""
    before = getattr(owner, name)

    def chosen(*arguments: Any, **named: Any) -> Any:
        return (function if _TRACES.get() else before)(*arguments, **named)

    setattr(owner, name, chosen)
    outer = _TRACES.set(True)
    try:
        yield
    finally:
        _TRACES.reset(outer)
        setattr(owner, name, before)
