"""Handles the tasks that a round is merged without, and chooses the tasks that the next round opens with.

Where `staleness` allows it, a task in progress goes on, and a later merge takes its answer. Otherwise its committed
answers are judged and paid, and not merged. Rows of tasks that no merge takes are first in line in the next round.
"""

from gradmarket.market.terms import TaskState
from requester.context import Context
from requester.moves.ending import cancel_open_tasks
from requester.store import jobs, tasks
from requester.store.event_log import record_event
from requester.store.in_hand import TaskInHand, of_tasks
from requester.store.ready_rows import BUSY
from requester.store.tables import Job
from requester.store.work import RowReader, Work


def leave_unfinished_tasks(context: Context, work: Work, job: Job, number: int) -> None:
    """Leaves the unaccepted tasks; called in the transaction that begins a round's merge.

    Where the merge needs all tasks, none is left.
    """
    spec = jobs.load_spec(job)
    if spec.secure is None and spec.tasks_needed == spec.tasks_per_round:
        return
    if not spec.staleness:
        cancel_open_tasks(context, work, job.id, number)
        return
    hands = of_tasks(work, tasks.lock_unaccepted_tasks(work, job.id, number)).values()
    idle = [hand for hand in hands if _is_idle(hand)]
    left = [hand.task for hand in hands if hand not in idle]
    for hand in idle:
        work.move(hand.task, TaskState.CANCELLED, ended_at=context.clock(), reason="it begins anew in the next round")
    for task in left:
        task.merge_round = number + 1
    if hands:
        facts = {"late": [task.id for task in left], "again": [hand.task.id for hand in idle]}
        record_event(work, job.id, "tasks_left", context.clock(), round=number, **facts)


def _is_idle(hand: TaskInHand) -> bool:
    """Returns whether the task has no worker and no answer: beginning it anew costs nothing."""
    return hand.task.state == TaskState.OPEN and hand.task.wave == 0 and not hand.in_state(*BUSY)


def next_tasks(reader: RowReader, job: Job, number: int) -> list[int]:
    """Returns the tasks that a round opens with: those that earlier rounds left and no worker holds, then new ones.

    Tasks of earlier rounds that go on count too, so that no merge has more answers than the job has tasks in a round.
    """
    spec = jobs.load_spec(job)
    if not spec.leaves_tasks:
        return list(spec.tasks_of(number))
    left = tasks.left_before(reader, job.id, number)
    again = sorted(index for index, goes_on in left.items() if not goes_on)
    first = tasks.first_new_task(reader, job.id, number)
    return [*again, *range(first, first + spec.tasks_per_round - len(left))]
