"""Decides when a task's answer may be published: once no further attempt at the task can be paid for it.

All attempts at a task compute the same answer. If it were known while the task may be done again, somebody could be
paid for it without computing.
"""

from gradmarket.market.terms import TaskState


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
    return kept and not has_equal_start(number, overlap)


def has_equal_start(number: int, overlap: int) -> bool:
    """Returns whether another round starts from the same parameters as this one."""
    return overlap > 0 and number <= overlap


def is_round_standing(number: int, first_open: int, overlap: int) -> bool:
    """Returns whether this round, and every other one that starts from its parameters, is before the first open one."""
    return max(number, overlap) < first_open
