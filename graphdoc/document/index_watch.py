"""Indices on a card, checked without waiting for it at each: flags are raised there, and read once a step.

A wrong index ends a card's process. So inside `watch_indices` the nearest right index replaces it, and the step is
refused at its end; outside of it every check waits for the card.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.document.checks import Rule, check_indices, clamp_indices
from graphdoc.errors import DocumentRefused


class IndexWatch:
    """The checks so far: the message of each, for the case that its flag on the device is raised."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self._flags: list[Tensor] = []

    def guard(self, name: str, rule: Rule, arguments: Sequence[Any]) -> list[Any]:
        """Returns the arguments with every index in its range, and raises flags for those that were not."""
        for indices, least, end in rule(arguments):
            if indices.numel():
                misfits = ((indices < least) | (indices >= end)).any().reshape(1)
                self.add([f"{name}: an index is not in {least} to {end - 1}"], misfits)
        return clamp_indices(rule, arguments)

    def add(self, reports: Sequence[str], flags: Tensor) -> None:
        """Adds checks, whose flags are the elements of one tensor."""
        self.reports += reports
        self._flags.append(flags)

    def join_flags(self) -> Tensor | None:
        """Returns all flags in one tensor, in the order of `reports`; None without any check."""
        return torch.cat(self._flags) if self._flags else None

    def refuse_misfits(self) -> None:
        """Waits for the device. Raises DocumentRefused, naming the first operator with an index out of range."""
        joined = self.join_flags()
        for report, raised in zip(self.reports, [] if joined is None else joined.tolist(), strict=True):
            if raised:
                raise DocumentRefused(report)


_ACTIVE: Final[ContextVar[IndexWatch | None]] = ContextVar("active", default=None)
"""The active watch of this thread."""


def guard_indices(name: str, rule: Rule, arguments: Sequence[Any]) -> Sequence[Any]:
    """Returns arguments whose indices are in range, on a device whose kernels check none.

    Without a watch, it waits for the device, and raises DocumentRefused.
    """
    watch = _ACTIVE.get()
    if watch is not None:
        return watch.guard(name, rule, arguments)
    check_indices(rule, arguments)
    return arguments


def get_active_watch() -> IndexWatch | None:
    """Returns the watch that is active in this thread; None where there is none."""
    return _ACTIVE.get()


@contextmanager
def collect_flags() -> Iterator[IndexWatch]:
    """Raises flags within the block, for the caller to read."""
    watch = IndexWatch()
    before = _ACTIVE.set(watch)
    try:
        yield watch
    finally:
        _ACTIVE.reset(before)


@contextmanager
def watch_indices() -> Iterator[None]:
    """Reads flags once, at the end of the outermost such block. Raises DocumentRefused."""
    if _ACTIVE.get() is not None:
        yield
        return
    with collect_flags() as watch:
        yield
    watch.refuse_misfits()
