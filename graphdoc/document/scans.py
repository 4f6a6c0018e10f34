"""Runs a scan: its body once for each step, with the same operators in the same order as if it were written out.

So the bits of its results are those of the nodes written out, and those of their gradients: torch's autograd sees the
same graph.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from graphdoc.document.arguments import refuse_unless
from graphdoc.document.plans import read_result_form
from graphdoc.document.prepare import PreparedNodes, PreparedScan
from graphdoc.errors import DocumentRefused


class Body(Protocol):
    """Runs the nodes of a body once on these values; each counts `times` times."""

    def __call__(self, nodes: PreparedNodes, values: list[Any], times: int) -> None: ...


Carries = list[Any]


class ScanRun:
    """One scan of one run. Raises DocumentRefused where the given values differ in form between steps."""

    def __init__(self, step: PreparedScan, values: Sequence[Any], nodes: PreparedNodes, perform: Body) -> None:
        self.scan, self._body, self._perform = step.scan, step.body, perform
        self.start, self.given, self.fixed = step.get(values)
        for each in self.given:
            refuse_unless(
                len(set(map(read_result_form, each))) == 1, "what is given is not of one shape and type for all steps"
            )
        self._seed, self._device = values[nodes.seed], values[nodes.device]

    def once(self, number: int, carries: Sequence[Any], times: int = 1) -> tuple[Carries, list[Any]]:
        """Returns the carries after step `number`, and its results: `every`, and of the last step `last`."""
        scan, values = self.scan, self._body.values.copy()
        counted = [first + number * by for first, by in scan.counters]
        values[: scan.inputs] = [*carries, *(each[number] for each in self.given), *self.fixed, *counted]
        values[self._body.seed], values[self._body.device] = self._seed, self._device
        self._perform(self._body, values, times)
        given = scan.every + (scan.last if number == scan.length - 1 else ())
        return [values[place] for place in scan.carried], [values[place] for place in given]

    def results(self, every: Sequence[Sequence[Any]], last: Sequence[Any]) -> list[Any]:
        """Returns the scan's results: of the last step, then of `every`, which has one list for each step."""
        return [*last, *(value for column in zip(*every, strict=True) for value in column)]


Scanned = Callable[[ScanRun], Sequence[Any]]
"""Returns the results of a scan."""


def every_step(loop: ScanRun) -> Sequence[Any]:
    """Returns the scan's results, all steps run."""
    carries, each_step, count = loop.start, [], len(loop.scan.every)
    for number in range(loop.scan.length):
        carries, given = loop.once(number, carries)
        each_step.append(given[:count])
    return loop.results(each_step, given[count:])


def run_scan_ends(loop: ScanRun) -> Sequence[Any]:
    """Returns values without elements: the first and the last step alone are run, and have the forms of all.

    Raises DocumentRefused where a carry changes its form, or where a counter is out of range in the last step.
    """
    length, count = loop.scan.length, len(loop.scan.every)
    carries, given = loop.once(0, loop.start)
    check_carries(loop.start, carries)
    if length > 1:
        _, given = loop.once(length - 1, carries)
    return loop.results([given[:count]] * length, given[count:])


def check_carries(before: Sequence[Any], after: Sequence[Any]) -> None:
    """Raises DocumentRefused unless the carries have the same forms."""
    for place, (one, other) in enumerate(zip(before, after, strict=True)):
        if read_result_form(one) != read_result_form(other):
            raise DocumentRefused(f"carry {place} changes its shape or type from one step to the next")
