"""Describes the faults that kept workers from computing a task, and finds those that may get a second lease of one
attempt.

Workers whose machine failed get one, where nobody else is left.

A task whose replicas are all that it may have, and a market with no other worker, would else wait for nobody. A worker
that gave its lease back by choice gets none: it could choose its partners in a task. A failure that is claimed may be
such a choice too, so it costs a strike as before, and two leases of an attempt are the most.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gradmarket.market.printable import replace_controls
from gradmarket.market.terms import Address, ReplicaState
from gradmarket.market.wire.poll import FaultKind, StepFault


def shorten_printable(text: str, most: int) -> str:
    """Returns the text as one printable line of at most `most` characters, without control or direction characters."""
    return replace_controls(text, " ")[:most].strip()


_FAILED: Final = {
    FaultKind.STEP_FAILED: "the step fails",
    FaultKind.DATA_REFUSED: "the data is not what its manifest declares",
    FaultKind.LINK_FAILED: "the data's link does not serve it",
    FaultKind.OUT_OF_MEMORY: "the step finds too little memory",
    FaultKind.TIMED_OUT: "the step takes longer than workers allow",
    FaultKind.CRASHED: "the step ends the process that computes it",
    FaultKind.REFUSED: "the publication is unfit",
}


def describe_fault(fault: StepFault) -> str:
    """Returns a text on the failure and its place."""
    row = "" if fault.row is None else f"row {fault.row}"
    partition, input_name = (
        f"{noun} {name}" if name else "" for noun, name in (("partition", fault.partition), ("input", fault.input))
    )
    where = ", ".join(part for part in (fault.node, partition, input_name, row) if part)
    message = f": {fault.message}" if fault.message else ""
    return f"{_FAILED[fault.kind]}{' at ' if where else ''}{where}{message}"


MOST: Final = 2
"""Leases of one attempt that a worker may have."""
OF_THE_JOB: Final = frozenset({FaultKind.STEP_FAILED, FaultKind.DATA_REFUSED, FaultKind.REFUSED})
"""Failures that the same worker would only meet again."""
UNANSWERED: Final = frozenset(
    {ReplicaState.EXPIRED, ReplicaState.ERROR, ReplicaState.TOO_LATE, ReplicaState.NOT_NEEDED}
)
"""Ends of a lease without a commitment that are not the worker's choice."""


def find_returners(replicas: Sequence[tuple[Address, ReplicaState, StepFault | None]]) -> frozenset[Address]:
    """Returns the workers of an attempt's replicas that may have a lease of it once more."""
    leases = Counter(worker for worker, _state, _fault in replicas)
    barred = {
        worker
        for worker, state, fault in replicas
        if state not in UNANSWERED or (fault is not None and fault.kind in OF_THE_JOB)
    }
    return frozenset(worker for worker, count in leases.items() if count < MOST and worker not in barred)
