"""A task's plan as the rules of disputes know it, and its operations done again from the bytes that sides showed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gradmarket.market.features.disputes.referee import BEFORE, CourseOperation
from gradmarket.market.features.disputes.traced.operations import Operations, read_constant
from gradmarket.market.features.disputes.traced.plan import Slot, TaskPlan, iterate_reads
from gradmarket.market.terms import Hash
from graphdoc.tracing.packed import digest_plain_bytes
from graphdoc.tracing.values import Traced, compute_digest, locate_value, unpack_value


@dataclass(frozen=True)
class PlanCourse:
    """The operations of a plan, part by part (disputes.referee.Course)."""

    plan: TaskPlan

    @property
    def parts(self) -> int:
        return self.plan.count_parts

    def count(self, part: int) -> int:
        return len(self.plan.find_part(part)) + 1

    def lasting(self, part: int) -> int:
        return len(_sort_lasting(self.plan, part))

    def number(self, part: int, leaf: int) -> int:
        return self.plan.find_part(part).start + leaf

    def describe(self, part: int, leaf: int) -> CourseOperation:
        listed = self.plan.find_part(part)
        number, before = listed.start + leaf, _sort_lasting(self.plan, part - 1) if part else ()
        seals = number == listed.stop
        slots = _sort_lasting(self.plan, part) if seals else self.slots(number)
        reads = list(dict.fromkeys(slot.leaf - listed.start for slot in slots if slot.leaf >= listed.start))
        place = {read: number for number, read in enumerate(reads)}
        values = tuple(
            (place[slot.leaf - listed.start], slot.place) if slot.leaf >= listed.start else (BEFORE, before.index(slot))
            for slot in slots
        )
        if seals:
            return CourseOperation(f"checkpoint {part}", tuple(reads), values, len(slots))
        return CourseOperation(self.plan[number].name, tuple(reads), values, self.plan[number].results)

    def slots(self, number: int) -> Sequence[Slot]:
        """Returns each result that an operation of this number in the plan reads, once, in the order of its values."""
        return _list_slots(self.plan, number)

    def answer_leaf(self, root: Hash) -> bytes:
        return digest_plain_bytes(root)


@lru_cache(maxsize=16)
def _sort_lasting(plan: TaskPlan, part: int) -> Sequence[Slot]:
    return tuple(sorted(plan.list_lasting(part)))


@lru_cache(maxsize=16)
def _list_slots(plan: TaskPlan, leaf: int) -> Sequence[Slot]:
    return tuple(iterate_reads(plan[leaf]))


def redo_operation(operations: Operations, leaf: int, inputs: Sequence[bytes]) -> bytes:
    """Returns the leaf of an operation, done again from the bytes of what it reads alone.

    It takes the time and the memory of that operation. Raises Refused, OutOfMemory.
    """
    operation = operations.plan[leaf]
    shown = dict(zip(_list_slots(operations.plan, leaf), inputs, strict=True))
    values = []
    for read in operation.reads:
        value = read_constant(read)
        if isinstance(read, Slot):
            value = unpack_value(shown[read._replace(grad=False)], operations.device)
            if value is not None and read.grad:
                value = Traced(value.tensor(operations.device), True, value.base)
        values.append(value)
    results = operations.compute(operation, values)
    return b"".join(compute_digest(locate_value(result, values)) for result in results)
