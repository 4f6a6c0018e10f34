"""Names the determinism class whose machines vote together in a job, and check each other.

A worker names its class itself (market.features.audits.class_checks).

Where a job's arithmetic is reproducible (graphdoc.reproducible), its answers have one sequence of bits on every
x86 processor. There such a processor of any class is of the class REPRODUCIBLE: all vote together, and any auditor
checks them. Others keep their own class; a card takes no task, for it has no such kernels.
"""

from typing import Final

from gradmarket.market.terms import REPRODUCIBLE

PROCESSORS: Final = "cpu/x86_64"
"""The prefix of the class of a processor on which the bits were compared (graphdoc.runner.child)."""


def find_class_in_job(announced: str, reproducible: bool) -> str:
    """Returns the class of a machine that announces this one, in a job whose arithmetic is `reproducible` or not.

    REPRODUCIBLE itself stays.
    """
    return REPRODUCIBLE if reproducible and announced.startswith(PROCESSORS) else announced


def list_checked_classes(announced: str) -> tuple[str, ...]:
    """Returns the classes whose answers a machine that announces this one can compute again, bit by bit."""
    return tuple(dict.fromkeys((announced, find_class_in_job(announced, True))))


SEEN_S: Final = 3600.0
"""Seconds for which a worker counts as present after it was last seen."""


GRAIN: Final = 2**28
"""A worker rounds its statement down to multiples of this: enough to choose by, and little to recognise it by."""


def round_memory(size: int) -> int:
    """Returns a worker's statement about a device that takes steps of `size` bytes."""
    return size // GRAIN * GRAIN
