"""Queries about tasks and their replicas."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.requester.store.among import among
from gradmarket.requester.store.tables import Replica, Task


def replicas_of(session: Session, tasks: Sequence[Task]) -> dict[str, list[Replica]]:
    """All replicas of each task, by its id; as this transaction has left them, whether that is written yet or not."""
    found: dict[str, list[Replica]] = {task.id: [] for task in tasks}
    for replica in session.scalars(_OF_TASKS, {"tasks": list(found)}) if found else ():
        found[replica.task_id].append(replica)
    return found


_OF_TASKS: Final = select(Replica).where(among(Replica.task_id, "tasks")).execution_options(autoflush=False)
