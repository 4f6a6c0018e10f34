"""Decides when a task's answer may be published: once no further attempt at the task can be paid for it.

All attempts at a task compute the same answer. If it were known while the task may be done again, somebody could be
paid for it without computing.
"""

from gradmarket.market.terms import TaskState


def published(state: TaskState, diverged: bool, number: int, first_open: int | None, audited: bool) -> bool:
    """Returns whether the answer of a task in round `number` may be published.

    `first_open` is the first round of the job whose tasks may be done again, None where there is none. `diverged` means
    that the answer was accepted and not used, so a job that goes on issues the task again. Where nothing is `audited`,
    an accepted task is never issued again.
    """
    if first_open is None or number < first_open:
        return True
    return not audited and not diverged and state in (TaskState.ACCEPTED, TaskState.FINAL)
