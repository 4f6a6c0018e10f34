"""A task's plan in the form of the rules of disputes, and its operations redone from the bytes that the sides
showed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from gradmarket.market.features.disputes.referee import BEFORE, CourseOperation
from gradmarket.market.terms import Hash
from gradmarket.runner.features.disputes.traced.operations import Operations, read_constant
from gradmarket.runner.features.disputes.traced.plan import Slot, TaskPlan, iterate_reads
from graphdoc.tracing.packed import digest_plain_bytes
from graphdoc.tracing.rounding import judge_rounding
from graphdoc.tracing.values import Traced, Value, compute_digest, locate_value, unpack_value

COPIES: Final = frozenset({"rows", "state", "data", "payload"})
"""Kinds of operations that add and multiply nothing: any two machines get the same."""


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
    """Returns the leaf of an operation, redone from the bytes of its inputs alone.

    It takes the time and the memory of that operation. Raises Refused, OutOfMemory.
    """
    operation = operations.plan[leaf]
    values = _read_values(operations, leaf, inputs)
    results = operations.compute(operation, values)
    return b"".join(compute_digest(locate_value(result, values)) for result in results)


def _read_values(operations: Operations, leaf: int, inputs: Sequence[bytes]) -> list[Value]:
    shown = dict(zip(_list_slots(operations.plan, leaf), inputs, strict=True))
    values = []
    for read in operations.plan[leaf].reads:
        value = read_constant(read)
        if isinstance(read, Slot):
            value = unpack_value(shown[read._replace(grad=False)], operations.device)
            if value is not None and read.grad:
                value = Traced(value.tensor(operations.device), True, value.base)
        values.append(value)
    return values


def judge_results(operations: Operations, leaf: int, inputs: Sequence[bytes], results: Sequence[bytes]) -> bool | None:
    """Returns whether a machine of any class can have got these results of an operation from these inputs.

    None where its rounding has no bound (graphdoc.tracing.rounding). Operations that only copy round nothing. Raises
    Refused, OutOfMemory.
    """
    operation = operations.plan[leaf]
    values, claimed = _read_values(operations, leaf, inputs), [unpack_value(each, "cpu") for each in results]
    if operation.kind in COPIES:
        return all(map(_is_equal, operations.compute(operation, values), claimed))
    if operation.kind != "call":
        return None
    step, seed = operation.about
    found = judge_rounding(step, values, claimed, seed)
    return None if found is None else found.within


def _is_equal(one: Value, other: Value) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one.data, int | bytes):
        return bool(one.data == other.data)
    if isinstance(other.data, int | bytes):
        return False
    mine, theirs = one.array(), other.array()
    return mine.dtype == theirs.dtype and np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f")
