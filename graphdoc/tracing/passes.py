"""The order of one pass: its data, each call forward, each call backward from the last to the first.

Each of these is a step, whose results have one digest each. A step backward gives for each argument of its call the
gradient so far, with the call's part added. A step names its reads: results of earlier steps of the pass, the
document's state by name, or values known beforehand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple

from graphdoc.document.arguments import refuse_unless
from graphdoc.document.graph import Input
from graphdoc.document.interpret import Program
from graphdoc.tracing.unrolled import UnrolledCall, unroll_program


class Made(NamedTuple):
    """Result number `place` of a step of the pass."""

    step: int
    place: int


class Stated(NamedTuple):
    """A parameter, buffer or constant."""

    name: str
    grad: bool


class CounterValue(NamedTuple):
    """A counter's integer."""

    value: int


class Root(NamedTuple):
    """The gradient of the loss by itself: 1."""


Read = Made | Stated | CounterValue | Root | None
"""None: nothing, such as a gradient that no later node gave."""
DATA: Final = 0
"""The step whose results are the rows."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """A call forward reads its arguments; backward its arguments, the gradients of its results, and those so far."""

    way: Literal["forward", "backward"]
    call: UnrolledCall
    reads: tuple[Read, ...]

    @property
    def results(self) -> int:
        return len(self.call.makes) if self.way == "forward" else len(self.call.places)

    @property
    def name(self) -> str:
        return f"{self.way} of {self.call.name}"


class PassOrder:
    """The steps of every pass of a program; step DATA is not among `steps`, which begin after it."""

    def __init__(self, program: Program) -> None:
        self.document = program.document
        refuse_unless(
            self.document.arithmetic in ("native", "reproducible"),
            f"a pass in {self.document.arithmetic} arithmetic has no trace",
        )
        self._unrolled = unroll_program(program)

    @property
    def count(self) -> int:
        """The number of steps of a pass."""
        return 1 + 2 * len(self._unrolled.calls)

    @cached_property
    def data(self) -> tuple[Input, ...]:
        """The results of the step DATA."""
        return tuple(self.document.of("data"))

    @cached_property
    def steps(self) -> tuple[CallStep, ...]:
        """Every step after the data."""
        return self._walked[0]

    @cached_property
    def gradients(self) -> Mapping[str, Read]:
        """The place of each trainable parameter's gradient after all nodes went backward."""
        return self._walked[1]

    @cached_property
    def loss(self) -> Read:
        return self._values[self._unrolled.places[self.document.loss]]

    @cached_property
    def weight(self) -> Read:
        weight = self.document.weight
        return None if weight is None else self._values[self._unrolled.places[weight]]

    @cached_property
    def updates(self) -> Mapping[str, Read]:
        """The place of each float buffer's new value."""
        return {name: self._values[self._unrolled.places[value]] for name, value in self.document.updates.items()}

    @cached_property
    def _values(self) -> dict[int, Read]:
        """The place of each value."""
        own: dict[int, Read] = {number: CounterValue(value) for number, value in self._unrolled.numbers.items()}
        data = {entry.name: place for place, entry in enumerate(self.data)}
        for number, entry in enumerate(self.document.inputs):
            given = entry.kind == "data"
            own[number] = Made(DATA, data[entry.name]) if given else Stated(entry.name, entry.grad)
        for number, call in enumerate(self._unrolled.calls, 1):
            own.update({value: Made(number, place) for place, value in enumerate(call.makes)})
        return own

    @cached_property
    def _walked(self) -> tuple[tuple[CallStep, ...], Mapping[str, Read]]:
        calls, values = self._unrolled.calls, self._values
        steps = [CallStep("forward", call, tuple(values[read] for read in call.reads)) for call in calls]
        so_far: dict[int, Read] = {self._unrolled.places[self.document.loss]: Root()}
        for number, call in enumerate(reversed(calls), 1 + len(calls)):
            asked = (*call.makes, *call.reads)
            reads = (*(values[read] for read in call.reads), *(so_far.get(each) for each in asked))
            steps.append(CallStep("backward", call, reads))
            so_far.update({value: Made(number, place) for place, value in enumerate(call.reads)})
        inputs = enumerate(self.document.inputs)
        return tuple(steps), {entry.name: so_far.get(number) for number, entry in inputs if entry.grad}
