"""A task's plan as the rules of disputes know it, and its operations done again from the bytes that sides showed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gradmarket.market.model.traced.operations import Operations, read_constant
from gradmarket.market.model.traced.plan import Slot, TaskPlan, iterate_reads
from gradmarket.market.terms import Hash
from graphdoc.tracing.packed import digest_plain_bytes
from graphdoc.tracing.values import Traced, compute_digest, locate_value, unpack_value


@dataclass(frozen=True)
class PlanCourse:
    """The operations of a plan by number."""

    plan: TaskPlan

    def __len__(self) -> int:
        return len(self.plan)

    def reads(self, leaf: int) -> Sequence[int]:
        return list(dict.fromkeys(slot.leaf for slot in self.slots(leaf)))

    def values(self, leaf: int) -> Sequence[tuple[int, int]]:
        place = {read: number for number, read in enumerate(self.reads(leaf))}
        return [(place[slot.leaf], slot.place) for slot in self.slots(leaf)]

    def slots(self, leaf: int) -> Sequence[Slot]:
        """Returns each result that an operation reads, once, in the order of `values`."""
        return _list_slots(self.plan, leaf)

    def results(self, leaf: int) -> int:
        return self.plan[leaf].results

    def name(self, leaf: int) -> str:
        return self.plan[leaf].name

    def answer_leaf(self, root: Hash) -> bytes:
        return digest_plain_bytes(root)


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
