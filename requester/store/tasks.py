"""Queries about tasks and their replicas."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.requester.store.tables import Replica, Task


def replicas_of(session: Session, tasks: Sequence[Task]) -> dict[str, list[Replica]]:
    """All replicas of each task, by its id."""
    found: dict[str, list[Replica]] = {task.id: [] for task in tasks}
    for replica in session.scalars(select(Replica).where(Replica.task_id.in_(found))):
        found[replica.task_id].append(replica)
    return found
