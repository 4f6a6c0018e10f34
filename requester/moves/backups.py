"""Asks one more worker for a task that keeps a round waiting and is late by measured times (rules.stragglers).

As many as its wave needs decide the task, whoever commits first: a backup changes neither the vote nor what it costs.
"""

from collections.abc import Iterable

from gradmarket.market.terms import ReplicaState, TaskState
from requester.store import late_tasks
from requester.store.in_hand import TaskInHand
from requester.store.tables import Replica
from requester.store.work import Work


def request_backup(work: Work, hand: TaskInHand, now: float) -> None:
    """Opens a place for a backup, if the task is still to get one."""
    task = hand.task
    overdue = list_overtaken(hand.in_state(ReplicaState.LEASED), now)
    if task.state == TaskState.COMMITTING and not task.backups and overdue and late_tasks.is_last(work, hand.job, task):
        work.move(task, TaskState.OPEN, backups=1)
        work.notify("assign")


def list_overtaken(replicas: Iterable[Replica], now: float) -> list[Replica]:
    """Returns those that are late, and so have a strike once others answered: nobody stalls for nothing."""
    return [replica for replica in replicas if replica.expected_at is not None and replica.expected_at < now]
