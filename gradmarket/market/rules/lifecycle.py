"""The legal transitions of every entity. Any other raises. Every state has an exit for when nobody responds.

One command continues or ends a paused job. A task's answer may be published once no further attempt at the task can be
paid for it: all attempts at a task compute the same answer. If it were known while the task may be done again, somebody
could be paid for it without computing.
"""

from enum import StrEnum
from typing import Final, TypeVar

from gradmarket.market.errors import IllegalTransition
from gradmarket.market.terms import (
    AccusationState,
    Amount,
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
    _T.REFERRED: {_T.OPEN, _T.UPLOADING, _T.FAILED},
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
"""A single look at the chain may find several steps done, or one undone."""

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

ONCE_ACCEPTED: Final = (_T.ACCEPTED, _T.FINAL, _T.REVOKED)
"""States of tasks that were paid."""
AUDIT_OPEN: Final = (AuditState.DUE, AuditState.ANSWERED)
"""States of an audit that is not over."""
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


ESCROW_SHORT: Final = "the escrow does not cover another round"
"""The start of the reason of a job whose deposit is spent."""
AWAITS_TOP_UP: Final = "waits for the deposit of what was added to its budget"
DIVERGED: Final = "a gradient diverged"
"""The start of the reason of a job that a divergence paused."""
UNMEASURED: Final = "cannot be evaluated"
"""Part of the reason of a job whose held-out rows gave no figure."""


def choose_mending_command(job_id: str, reason: str, faulty: bool, audited_now: bool, missing: Amount) -> str:
    """Returns the command for a job that paused for `reason`.

    `faulty`: its document or data are at fault. `audited_now`: an audit may still find that a divergence is a lie.
    `missing` is the most that the rest of the job costs beyond its deposit, in the token's smallest unit. A divergence
    or a failing computation happens again from the same parameters: such a job is cancelled, and its remaining money
    returned.
    """
    if reason.startswith(ESCROW_SHORT):
        return f"gradmarket job fund {job_id} {missing}"
    if reason.startswith(DIVERGED) and audited_now:
        return "gradmarket auditor run"
    if faulty or reason.startswith(DIVERGED) or UNMEASURED in reason:
        return f"gradmarket job cancel {job_id}"
    return f"gradmarket job resume {job_id}"


def may_publish_answer(
    state: TaskState, diverged: bool, number: int, first_open: int | None, audited: bool, overlap: int = 0
) -> bool:
    """Returns whether the answer of a task in round `number` may be published.

    `first_open` is the first round of the job whose tasks may be done again, None where there is none. `diverged` means
    that the answer was accepted and not used, so a job that goes on issues the task again. Where nothing is `audited`,
    an accepted task is never issued again.

    With an `overlap`, the first rounds start from the same parameters, and a task of one may have the rows of a task of
    another: their answers wait for the last of these rounds.
    """
    if first_open is None or is_round_standing(number, first_open, overlap):
        return True
    kept = not audited and not diverged and state in (TaskState.ACCEPTED, TaskState.FINAL)
    alike = overlap > 0 and number <= overlap  # another round starts from the same parameters
    return kept and not alike


def is_round_standing(number: int, first_open: int, overlap: int) -> bool:
    """Returns whether this round, and every other one that starts from its parameters, is before the first open one."""
    return max(number, overlap) < first_open
