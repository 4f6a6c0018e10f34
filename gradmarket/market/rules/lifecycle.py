"""The legal transitions of every entity. Any other raises. Every state has an exit for when nobody responds."""

from enum import StrEnum
from typing import Final, TypeVar

from gradmarket.market.errors import IllegalTransition
from gradmarket.market.terms import (
    AccusationState,
    AuditState,
    BatchState,
    CalibrationState,
    JobState,
    ReplicaState,
    RoundState,
    TaskState,
)

State = TypeVar("State", bound=StrEnum)

_J, _T, _R, _B, _A, _C = JobState, TaskState, ReplicaState, BatchState, AuditState, AccusationState

JOB: Final = {
    _J.DRAFT: {_J.AWAITING_FUNDS, _J.FAILED, _J.CANCELLED},
    _J.AWAITING_FUNDS: {_J.RUNNING, _J.CANCELLED, _J.FAILED},
    _J.RUNNING: {_J.PAUSED, _J.FINISHED, _J.CANCELLED, _J.FAILED},
    _J.PAUSED: {_J.RUNNING, _J.FINISHED, _J.CANCELLED, _J.FAILED},
    _J.FINISHED: set[JobState](),
    _J.CANCELLED: set[JobState](),
    _J.FAILED: set[JobState](),
}

ROUND: Final = {
    RoundState.OPEN: {RoundState.MERGING, RoundState.REWOUND},
    RoundState.MERGING: {RoundState.CLOSED},
    RoundState.CLOSED: {RoundState.OPEN, RoundState.REWOUND},
    RoundState.REWOUND: {RoundState.OPEN},
}

TASK: Final = {
    _T.OPEN: {_T.COMMITTING, _T.REVEALING, _T.FAILED, _T.CANCELLED},
    _T.COMMITTING: {_T.OPEN, _T.REVEALING, _T.CANCELLED},
    _T.REVEALING: {_T.OPEN, _T.REFERRED, _T.UPLOADING, _T.FAILED},
    _T.REFERRED: {_T.UPLOADING, _T.FAILED},
    _T.UPLOADING: {_T.ACCEPTED, _T.DIVERGED, _T.FAILED},
    _T.ACCEPTED: {_T.FINAL, _T.REVOKED},
    _T.DIVERGED: {_T.FINAL, _T.REVOKED},
    _T.FAILED: set[TaskState](),
    _T.CANCELLED: set[TaskState](),
    _T.FINAL: set[TaskState](),
    _T.REVOKED: set[TaskState](),
}

_LEFT_A_LEASE: Final = {_R.EXPIRED, _R.ABANDONED, _R.ERROR, _R.NOT_NEEDED, _R.TOO_LATE}

REPLICA: Final = {
    _R.LEASED: {_R.COMMITTED, *_LEFT_A_LEASE},
    _R.COMMITTED: {_R.REVEALED, _R.WITHHELD, _R.REJECTED},
    _R.REVEALED: {_R.AGREE, _R.REJECTED, _R.INCONCLUSIVE},
    _R.AGREE: {_R.PAYABLE, _R.DIVERGED, _R.WITHHELD, _R.REJECTED, _R.INCONCLUSIVE},
    **{state: set[ReplicaState]() for state in _LEFT_A_LEASE},
    _R.PAYABLE: set[ReplicaState](),
    _R.DIVERGED: set[ReplicaState](),
    _R.REJECTED: {_R.PAYABLE, _R.INCONCLUSIVE},
    _R.WITHHELD: set[ReplicaState](),
    _R.INCONCLUSIVE: set[ReplicaState](),
}

BATCH: Final = {
    _B.PREPARED: {_B.SENT, _B.SETTLED},
    _B.SENT: {_B.SETTLED, _B.PREPARED},
    _B.SETTLED: {_B.PREPARED},
}

AUDIT: Final = {
    _A.DUE: {_A.ANSWERED, _A.LAPSED},
    _A.ANSWERED: {_A.PASSED, _A.FAILED, _A.DUE},
    _A.PASSED: {_A.DUE},  # by two windows; another audit of the operator failed, so the whole task is repeated
    _A.FAILED: set[AuditState](),
    _A.LAPSED: set[AuditState](),
}

CALIBRATION: Final = {
    CalibrationState.GATHERING: {CalibrationState.CALIBRATED, CalibrationState.REFUSED},
    CalibrationState.CALIBRATED: {CalibrationState.REFUSED},
    CalibrationState.REFUSED: set[CalibrationState](),
}

ACCUSATION: Final = {
    **{state: set(AccusationState) - {_C.DUE, state} for state in (_C.DUE, _C.OPEN, _C.CONTESTED)},
    **{state: set[AccusationState]() for state in (_C.SLASHED, _C.ACQUITTED, _C.DISMISSED, _C.VOID)},
}
"""One look at the chain may show several steps done, or one undone."""

TABLES: Final = {
    JobState: JOB,
    RoundState: ROUND,
    TaskState: TASK,
    ReplicaState: REPLICA,
    BatchState: BATCH,
    AuditState: AUDIT,
    CalibrationState: CALIBRATION,
    AccusationState: ACCUSATION,
}

PAID: Final = frozenset({_R.PAYABLE, _R.DIVERGED})
"""Replicas that earned the task's price."""

IN_FLIGHT: Final = frozenset({_R.LEASED, _R.COMMITTED, _R.REVEALED, _R.AGREE})
"""Replicas that may still earn their price."""


SILENT: Final = frozenset({_R.EXPIRED, _R.ABANDONED, _R.TOO_LATE, _R.WITHHELD})
"""Replicas whose worker left its place unanswered."""


def check_transition(old: State, new: State) -> State:
    """Returns `new` if `old` may become it. Raises IllegalTransition otherwise."""
    if new not in TABLES[type(old)][old]:  # type: ignore[index]
        raise IllegalTransition(f"{type(old).__name__} {old} -> {new}")
    return new


def is_final_state(state: StrEnum) -> bool:
    """Returns whether the state is final.

    A rejection counts as final, although an audit, or a quorum that does not deliver, can still change it.
    """
    return not TABLES[type(state)][state] or state is _R.REJECTED  # type: ignore[index]
