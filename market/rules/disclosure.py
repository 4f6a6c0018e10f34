"""When a task's answer may be published: once no further attempt at the task can be paid for it.

All attempts at a task compute the same answer. An answer that is known while the task may be done again is paid work
for somebody who computes nothing.
"""

from gradmarket.market.terms import TaskState


def published(state: TaskState, diverged: bool, number: int, first_open: int | None, audited: bool) -> bool:
    """Whether the answer of a task in round `number` may be told to anybody.

    `first_open` is the first round of the job whose tasks may be done again, None where there is none. `diverged`: the
    answer was accepted and not used, so a job that goes on asks for the task again. Where nothing is audited an
    accepted answer is never asked for again.
    """
    if first_open is None or number < first_open:
        return True
    return not audited and not diverged and state in (TaskState.ACCEPTED, TaskState.FINAL)
