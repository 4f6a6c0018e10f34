"""Queries about tasks and their replicas."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from gradmarket.requester.store.among import among
from gradmarket.requester.store.tables import Replica, Task
from gradmarket.requester.store.work import RowReader


def replicas_of(reader: RowReader, tasks: Sequence[Task]) -> dict[str, list[Replica]]:
    """Returns all replicas of each task by its id, as this transaction has left them, whether flushed yet or not."""
    by_task: dict[str, list[Replica]] = {task.id: [] for task in tasks}
    for replica in reader.session.scalars(_OF_TASKS, {"tasks": list(by_task)}) if by_task else ():
        by_task[replica.task_id].append(replica)
    return by_task


_OF_TASKS: Final = select(Replica).where(among(Replica.task_id, "tasks")).execution_options(autoflush=False)
