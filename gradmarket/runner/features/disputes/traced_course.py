"""A disputed task on this machine: its operations, its trace, and one operation, all in the confined child."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gradmarket.market.errors import Refused, RunnerFailed
from gradmarket.market.features.disputes.referee import CourseOperation
from gradmarket.market.terms import Hash
from gradmarket.runner.features.disputes.tracing_runner import OperationInfo, PartInfo, TracingRunner
from gradmarket.runner.market_runner import TaskInputs
from graphdoc.tracing.packed import digest_plain_bytes

LARGER: Final = "give its process more memory, or take a larger machine"


@dataclass(frozen=True)
class TracedCourse:
    """The course of a task (disputes.referee.Course), which the child describes operation by operation."""

    runner: TracingRunner
    inputs: TaskInputs
    _parts: dict[int, PartInfo] = field(default_factory=dict)
    _told: dict[tuple[int, int], OperationInfo] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        return self._outline(0).parts

    def count(self, part: int) -> int:
        return self._outline(part).count

    def lasting(self, part: int) -> int:
        return self._outline(part).lasting

    def number(self, part: int, leaf: int) -> int:
        return self._outline(part).first + leaf

    def describe(self, part: int, leaf: int) -> CourseOperation:
        described = self._describe(part, leaf)
        return CourseOperation(described.name, described.reads, described.values, described.results)

    def answer_leaf(self, root: Hash) -> bytes:
        return digest_plain_bytes(root)

    def detail(self, part: int) -> Sequence[bytes]:
        """Returns the leaves of a part, its checkpoint last: the task is traced once more for them."""
        trace = self.runner.trace(self.inputs, [part])
        return [*trace.leaves, trace.checkpoints[part]]

    def show(self, part: int, leaf: int) -> Sequence[bytes]:
        """Returns the bytes of an operation's inputs: the task is traced once more for them."""
        return self.runner.trace(self.inputs, (), self._describe(part, leaf).slots).values

    def results(self, part: int, leaf: int) -> Sequence[bytes]:
        """Returns the bytes of an operation's results on this machine: the task is traced once more for them."""
        number = self.number(part, leaf)
        wanted = [(number, place) for place in range(self._describe(part, leaf).results)]
        return self.runner.trace(self.inputs, (), wanted).values

    def judge(self, leaf: int, values: Sequence[bytes], results: Sequence[bytes]) -> bool | None:
        """Returns whether any class can have got these results of an operation; None where no bound is known."""
        try:
            return self.runner.judge(self.inputs, leaf, values, results)
        except RunnerFailed as error:
            raise Refused(f"this machine could not compute it: {error.detail}", LARGER) from error

    def redo(self, leaf: int, values: Sequence[bytes]) -> bytes:
        """Returns the leaf of an operation. Raises Refused where it cannot be computed here."""
        try:
            return self.runner.redo(self.inputs, leaf, values)
        except RunnerFailed as error:
            raise Refused(f"this machine could not compute it: {error.detail}", LARGER) from error

    def _outline(self, part: int) -> PartInfo:
        if part not in self._parts:
            self._parts[part] = self.runner.outline(self.inputs, part)
        return self._parts[part]

    def _describe(self, part: int, leaf: int) -> OperationInfo:
        if (part, leaf) not in self._told:
            self._told[part, leaf] = self.runner.describe(self.inputs, part, leaf)
        return self._told[part, leaf]
