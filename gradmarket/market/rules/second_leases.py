"""Who may get a second lease of one attempt: workers whose machine failed, where nobody else is left.

A task whose replicas are all that it may have, and a market with no other worker, would else wait for nobody. Whoever
gave its lease back by choice gets none: it could choose with whom it shares a task. A failure that is claimed may be
such a choice too, so it costs a strike as before, and two leases of an attempt are the most.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gradmarket.market.terms import Address, ReplicaState
from gradmarket.market.wire.step_fault import FaultKind, StepFault

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
    barred = {worker for worker, state, fault in replicas if not _may_return(state, fault)}
    return frozenset(worker for worker, count in leases.items() if count < MOST and worker not in barred)


def _may_return(state: ReplicaState, fault: StepFault | None) -> bool:
    return state in UNANSWERED and (fault is None or fault.kind not in OF_THE_JOB)
