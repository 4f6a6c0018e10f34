"""The operations of a task in order, each with its inputs: every machine derives the same list from the job.

Operation number `leaf` gives the leaf of that number of a trace: the digests of its results. The list is a head, the
inner steps (one for a gradient), each with as many operations, and a tail; so any is found without the others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.step import GradientStep, LocalStep
from graphdoc.document.graph import WEIGHT
from graphdoc.document.interpret import Program
from graphdoc.passes import derive_part_seed
from graphdoc.tracing.passes import CallStep, CounterValue, Made, PassOrder, Read, Root, Stated

Kind = Literal[
    "rows", "state", "data", "call", "shares", "sum", "mean", "weight", "clip", "move", "tally", "change",
    "loss", "whole", "shard", "payload",
]  # fmt: skip
LOSS: Final = "loss"


class Slot(NamedTuple):
    """Result number `place` of operation `leaf`; `grad`: a gradient is asked of it where it is read."""

    leaf: int
    place: int
    grad: bool = False


Source = Slot | CounterValue | Root | None
"""None: nothing."""


@dataclass(frozen=True, slots=True)
class TaskOperation:
    """`name` describes its place in words; `results` is their number; `about` holds further arguments of its kind."""

    kind: Kind
    name: str
    reads: tuple[Source, ...]
    results: int
    about: Any = None


@dataclass(frozen=True)
class TracedTask:
    """A task's description. `layout` is its payload's, `seed` the offer's. Raises Refused if it cannot be traced."""

    program: Program
    layout: Layout
    codec: Codec
    step: GradientStep | LocalStep
    seed: bytes

    def __post_init__(self) -> None:
        if self.step.by_row:
            raise Refused("noised gradients are drawn anew each time: nobody can compute them again")
        if self.step.leaves:
            raise Refused("a task that commits to windows is audited window by window and not traced")
        if isinstance(self.step, LocalStep) and self.step.control_variates:
            raise Refused("a holder's control variates are its own: nobody else can compute with them")


State = dict[str, Source]
"""Where each parameter, buffer and constant is."""


@dataclass
class _Block:
    """Operations that are being listed, from leaf `first` on."""

    first: int
    listed: list[TaskOperation] = field(default_factory=list)

    def add(self, kind: Kind, name: str, reads: tuple[Source, ...] = (), results: int = 1, about: Any = None) -> Slot:
        self.listed.append(TaskOperation(kind, name, reads, results, about))
        return Slot(self.first + len(self.listed) - 1, 0)


@dataclass(frozen=True)
class _After:
    """The sources of the state after an inner step."""

    state: State
    memory: Mapping[str, tuple[Source, ...]]
    means: Mapping[str, Source]
    tally: Source = None


class TaskPlan:
    """The operations of a task, by number."""

    def __init__(self, task: TracedTask) -> None:
        self.task = task
        self._order = PassOrder(task.program)
        self._document = task.program.document
        self._names = [entry.name for entry in self._document.trainable]
        self._local = task.step if isinstance(task.step, LocalStep) else None
        self._cached: tuple[int, list[TaskOperation]] | None = None

    def __len__(self) -> int:
        return self._tail_begins + len(self.tail)

    def __getitem__(self, leaf: int) -> TaskOperation:
        if leaf < len(self.head):
            return self.head[leaf]
        if leaf >= self._tail_begins:
            return self.tail[leaf - self._tail_begins]
        number, place = divmod(leaf - len(self.head), self._step_size)
        return self.list_step(number)[place]

    def list_lasting(self, part: int) -> set[Slot]:
        """Returns the results that operations after a part of `parts` read."""
        if part > self.task.step.moves:
            return {Slot(len(self) - 1, 0)}
        after = self._before(part)
        sources = [*self._before(0).state.values(), *after.state.values(), *after.means.values(), after.tally]
        sources += [source for held in after.memory.values() for source in held]
        return {Slot(0, 0)} | {source._replace(grad=False) for source in sources if isinstance(source, Slot)}

    @property
    def local(self) -> LocalStep:
        """Returns the task's local steps. Raises Refused where it is a gradient."""
        if self._local is None:
            raise Refused("the task has no inner optimizer")
        return self._local

    def parts(self) -> Iterator[tuple[int, list[TaskOperation]]]:
        """Yields the head, each inner step and the tail, with the number of the first operation of each."""
        yield 0, self.head
        for number in range(self.task.step.moves):
            yield len(self.head) + number * self._step_size, self.list_step(number)
        yield self._tail_begins, self.tail

    @property
    def count_parts(self) -> int:
        """Returns how many parts it has: the head, the inner steps and the tail."""
        return self.task.step.moves + 2

    def find_part(self, part: int) -> range:
        """Returns the numbers of a part's operations."""
        first, size = len(self.head), self._step_size
        if part == 0:
            return range(first)
        if part == self.count_parts - 1:
            return range(self._tail_begins, len(self))
        return range(first + (part - 1) * size, first + part * size)

    @cached_property
    def head(self) -> list[TaskOperation]:
        block = _Block(0)
        block.add("rows", "draw of the task's rows")
        for name in self._document.state:
            block.add("state", f"{name} of the round's parameters", about=name)
        return block.listed

    def list_step(self, number: int) -> list[TaskOperation]:
        """Returns the operations of an inner step."""
        if self._cached is None or self._cached[0] != number:
            self._cached = number, self._build_step(number, self._before(number))[0]
        return self._cached[1]

    def state_before(self, number: int) -> State:
        """Returns where each parameter, buffer and constant is before an inner step."""
        return self._before(number).state

    @cached_property
    def _first_step(self) -> tuple[list[TaskOperation], _After]:
        return self._build_step(0, self._before(0))

    @cached_property
    def _step_size(self) -> int:
        return len(self._first_step[0])

    @property
    def _tail_begins(self) -> int:
        return len(self.head) + self.task.step.moves * self._step_size

    def _before(self, number: int) -> _After:
        """Returns the sources before an inner step: those after the first one, shifted by the steps between."""
        if number == 0:
            return _After({name: Slot(place, 0) for place, name in enumerate(self._document.state, 1)}, {}, {})
        after, by = self._first_step[1], (number - 1) * self._step_size

        def shift(source: Source) -> Source:
            inside = isinstance(source, Slot) and source.leaf >= len(self.head)
            return source._replace(leaf=source.leaf + by) if inside and isinstance(source, Slot) else source

        memory = {name: tuple(map(shift, sources)) for name, sources in after.memory.items()}
        state, means = ({name: shift(source) for name, source in each.items()} for each in (after.state, after.means))
        return _After(state, memory, means, shift(after.tally))

    def _build_step(self, number: int, before: _After) -> tuple[list[TaskOperation], _After]:
        size = 0 if number == 0 else number * self._step_size
        block, step = _Block(len(self.head) + size), self.task.step
        where = f"inner step {number}, " if self._local else ""
        seed = derive_part_seed(b"inner", number, self.task.seed) if self._local else self.task.seed
        sums: dict[str, Source] = dict.fromkeys((LOSS, *self._names))
        shares: Source = None
        state = dict(before.state)
        for part, start in enumerate(range(0, step.rows, step.pass_rows)):
            stop, own = min(start + step.pass_rows, step.rows), derive_part_seed(b"microbatch", part, seed)
            there = f"{where}microbatch {part}, "
            find = self._add_pass(
                block, there, slice(number * step.rows + start, number * step.rows + stop), state, own
            )
            if self._document.weight is not None:
                shares = block.add("shares", f"{there}share of the mean", (shares, find(self._order.weight)))
            given = {LOSS: self._order.loss, **self._order.gradients}
            for name, read in given.items():
                reads = (sums[name], find(read), shares)
                sums[name] = block.add("sum", f"{there}sum of {name}", reads, 1, (name, (stop - start) / step.rows))
            state |= {name: find(read) for name, read in self._order.updates.items()}
        means = sums
        if shares is not None:
            means = {name: block.add("mean", f"{where}mean of {name}", (sums[name], shares)) for name in sums}
            means[WEIGHT] = block.add("weight", f"{where}weight of the rows", (shares,))
        after = _After(state, before.memory, means)
        return block.listed, self._add_moves(block, where, number, before, after) if self._local else after

    def _add_pass(self, block: _Block, there: str, rows: slice, state: State, seed: bytes) -> Any:
        """Adds a pass; returns the sources of its inputs and results."""
        first = block.first + len(block.listed)
        given = dict(state)

        def find(read: Read) -> Source:
            match read:
                case Made(step, place):
                    return Slot(first + step, place)
                case Stated(name, grad):
                    source = given[name]
                    return source._replace(grad=grad) if isinstance(source, Slot) else source
            return read

        block.add("data", f"{there}rows", (Slot(0, 0),), len(self._order.data), rows)
        for step in self._order.steps:
            block.add("call", there + step.name, tuple(map(find, step.reads)), step.results, (step, seed))
        return find

    def _add_moves(self, block: _Block, where: str, number: int, before: _After, after: _After) -> _After:
        """Adds the inner optimizer's step."""
        step = self.local
        state, memory = dict(after.state), {}
        first = self._before(0).state if step.proximal else dict[str, Source]()
        factor: Source = None
        if step.optimizer.clip is not None:
            kinds = (after.means, before.state, first) if first else (after.means,)
            reads = tuple(kind[name] for kind in kinds for name in self._names)
            factor = block.add("clip", f"{where}norm of the gradient", reads)
        for name in self._names:
            keys = self.memory_keys(name)
            held = before.memory.get(name, (None,) * len(keys))
            reads = (before.state[name], after.means[name], factor, first.get(name), *held)
            moved = block.add("move", f"{where}optimizer's step of {name}", reads, 1 + len(keys), (name, number))
            state[name] = moved
            memory[name] = tuple(Slot(moved.leaf, place) for place in range(1, 1 + len(keys)))
        reads = (before.tally, after.means[LOSS], after.means.get(WEIGHT))
        return _After(state, memory, after.means, block.add("tally", f"{where}sum of the losses", reads))

    def memory_keys(self, name: str) -> tuple[str, ...]:
        """Returns the inner optimizer's arrays of a parameter, and those that all have in common, in order."""
        return self._memory_keys[name]

    @cached_property
    def _memory_keys(self) -> dict[str, tuple[str, ...]]:
        chosen, state = self.local.optimizer, self._document.state
        rule = load_optimizer(chosen.name)
        settings = rule.Settings(**chosen.settings)
        zeros = {name: np.broadcast_to(np.float32(0), state[name][0]) for name in self._names}
        return {name: tuple(sorted(rule.start({name: array}, settings))) for name, array in zeros.items()}

    @cached_property
    def tail(self) -> list[TaskOperation]:
        """The answer's tensors, its shards, and its root."""
        block, last = _Block(self._tail_begins), self._before(self.task.step.moves)
        answer: State = {name: last.state[name] for name in self._document.updates}
        if self._local is None:
            answer |= last.means
        else:
            first = self._before(0).state
            for name in self._names:
                answer[name] = block.add("change", f"change of {name}", (first[name], last.state[name]))
            answer[LOSS] = block.add("loss", "mean loss", (last.tally,))
            answer[WEIGHT] = block.add("whole", "weight of the rows", (last.tally,))
        layout = self.task.layout
        shards: list[Source] = []
        for index, shard in enumerate(layout.shards):
            pieces = [
                (entry.name, slice(max(shard.start - start, 0), min(shard.stop - start, entry.size)))
                for entry, start in zip(layout.entries, layout.starts, strict=True)
                if start < shard.stop and shard.start < start + entry.size
            ]
            reads = tuple(answer[name] for name, _ in pieces)
            about = index, tuple(part for _, part in pieces)
            shards.append(block.add("shard", f"shard {index} of the payload", reads, 1, about))
        weight = answer[WEIGHT] if layout.weighed else None
        block.add("payload", "root of the payload", (*shards, weight))
        return block.listed


def iterate_reads(operation: TaskOperation) -> Iterator[Slot]:
    """Yields each result that an operation reads, once, as it was made."""
    slots = dict.fromkeys(read._replace(grad=False) for read in operation.reads if isinstance(read, Slot))
    return iter(slots)


def is_backward(operation: TaskOperation) -> bool:
    return (
        operation.kind == "call" and isinstance(operation.about[0], CallStep) and operation.about[0].way == "backward"
    )
