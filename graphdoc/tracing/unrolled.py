"""The nodes of a document one after the other, those of a scan's body once for each step, with their reads.

Values are numbered: the document's inputs first, then the results of each call in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphdoc.document.arguments import Argument, Reference
from graphdoc.document.graph import Node, Scan
from graphdoc.document.interpret import Program
from graphdoc.document.prepare import PreparedCall, PreparedNodes, PreparedScan


@dataclass(frozen=True, slots=True)
class UnrolledCall:
    """One operator called once. It reads the values `reads` at the places `places` of its list, and makes `makes`."""

    step: PreparedCall
    nodes: PreparedNodes
    places: tuple[int, ...]
    reads: tuple[int, ...]
    makes: tuple[int, ...]

    @property
    def name(self) -> str:
        """Returns the number of the node among all of the document's, and its operator."""
        return f"node {self.step.number} ({self.step.name})"


@dataclass(frozen=True)
class Unrolled:
    """All calls of a run; `numbers` are the values that are counters of a scan, whose integers are known."""

    calls: tuple[UnrolledCall, ...]
    numbers: dict[int, int]
    places: dict[int, int]
    """The number of each of the document's own values."""


def unroll_program(program: Program) -> Unrolled:
    """Returns the program's calls in the order in which they run."""
    unrolling = _Unrolling(len(program.document.inputs))
    own = unrolling.run(program.document.nodes, program.prepared, list(range(len(program.document.inputs))))
    return Unrolled(tuple(unrolling.calls), unrolling.numbers, own)


class _Unrolling:
    def __init__(self, inputs: int) -> None:
        self.calls: list[UnrolledCall] = []
        self.numbers: dict[int, int] = {}
        self._next = inputs

    def run(self, nodes: Sequence[Node | Scan], prepared: PreparedNodes, given: Sequence[int]) -> dict[int, int]:
        """Returns the number of each value of these nodes' list, whose first ones are given."""
        known = dict(enumerate(given))
        for node, step in zip(nodes, prepared.steps, strict=True):
            if isinstance(node, Scan) and isinstance(step, PreparedScan):
                results = self._run_scan(node, step, known)
            elif isinstance(node, Node) and isinstance(step, PreparedCall):
                results = self._call(node, step, prepared, known)
            else:
                raise TypeError(f"{node.op} was prepared as something else")
            known.update(zip(node.results, results, strict=True))
        return known

    def _call(self, node: Node, step: PreparedCall, prepared: PreparedNodes, known: dict[int, int]) -> Sequence[int]:
        places = tuple(dict.fromkeys(_list_places(node.arguments)))
        makes = tuple(self._number() for _ in node.results)
        self.calls.append(UnrolledCall(step, prepared, places, tuple(known[place] for place in places), makes))
        return makes

    def _run_scan(self, scan: Scan, step: PreparedScan, known: dict[int, int]) -> Sequence[int]:
        carries = [known[start.value] for start in scan.start]
        fixed = [known[each.value] for each in scan.fixed]
        every: list[list[int]] = []
        last: list[int] = []
        for number in range(scan.length):
            given = [known[each[number].value] for each in scan.given]
            counted = [self._count(first + number * by) for first, by in scan.counters]
            body = self.run(scan.body, step.body, [*carries, *given, *fixed, *counted])
            carries = [body[place] for place in scan.carried]
            every.append([body[place] for place in scan.every])
            last = [body[place] for place in scan.last]
        return [*last, *(value for column in zip(*every, strict=True) for value in column)]

    def _count(self, integer: int) -> int:
        number = self._number()
        self.numbers[number] = integer
        return number

    def _number(self) -> int:
        self._next += 1
        return self._next - 1


def _list_places(arguments: Sequence[Argument] | Any) -> list[int]:
    """Returns the values that arguments refer to, in order."""
    found: list[int] = []
    for argument in arguments:
        if isinstance(argument, Reference):
            found.append(argument.value)
        elif isinstance(argument, tuple):
            found += _list_places(argument)
    return found
