"""Outcomes of cases, as a table by format, and below it every failure with the seed that plays it again."""

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.table import Table

from fuzz.child import Outcome

SHOWN: Final = 20
"""Failures shown of one kind, at most."""


def shown(results: Mapping[str, Outcome]) -> int:
    """Prints it; 1 where anything failed, 0 otherwise."""
    table = Table("format", "cases", "accepted", "refused", "failed", "slowest ms", "its seed", "ms a case")
    for kind, outcome in results.items():
        numbers = (outcome.cases, outcome.accepted, outcome.refused, len(outcome.failures))
        mean = f"{1000 * outcome.seconds / max(1, outcome.cases):.2f}" if outcome.seconds else ""
        table.add_row(kind, *(f"{number:,}" for number in numbers), f"{outcome.slowest_ms:.1f}", outcome.slowest, mean)
    Console(width=120).print(table)
    for outcome in results.values():
        for seed, fault in outcome.failures[:SHOWN]:
            print(f"\nmake fuzz SEED={seed}\n{fault}")
    return 1 if any(outcome.failures for outcome in results.values()) else 0
