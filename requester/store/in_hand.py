"""Loads the rows that a transaction works on in one piece, by one query after the locks."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import and_, select
from sqlalchemy.orm import defer

from gradmarket.market.terms import Address, Hash, ReplicaState
from requester.store.among import is_in_bound_list
from requester.store.locks import LockedTasks, claimed_task
from requester.store.tables import Job, Replica, Round, Task, Wave, Worker
from requester.store.work import RowReader, Work


@dataclass(slots=True)
class TaskInHand:
    """A task with its job, its current wave once that is closed, and all its replicas, ordered by worker."""

    task: Task
    job: Job
    wave: Wave | None
    replicas: list[Replica]
    workers: dict[str, Worker] = field(default_factory=dict)
    """The replicas' workers, by address; loaded only where payloads are paid for."""
    round: Round | None = None
    """The round that merges the task, once opened; loaded likewise."""

    def in_state(self, *states: ReplicaState) -> list[Replica]:
        return [replica for replica in self.replicas if replica.state in states]

    def list_commitments(self) -> list[tuple[Address, Hash]]:
        """Returns the current wave's commitments: pairs of a worker and its sealed answer."""
        members = (replica for replica in self.replicas if replica.wave == self.task.wave)
        return [(replica.worker, Hash(replica.sealed)) for replica in members if replica.sealed is not None]

    @property
    def wave_seed(self) -> Hash:
        """The seed of the closed wave; raises LookupError while it is open."""
        if self.wave is None:
            raise LookupError(f"the wave of task {self.task.id} is open")
        return self.wave.seed


@dataclass(slots=True, frozen=True)
class ReplicaInHand:
    """A worker's replica, with its task and all rows of the task."""

    replica: Replica
    hand: TaskInHand


_REPLICAS: Final = (
    select(Replica, Wave)
    .join(Task, Task.id == Replica.task_id)
    .outerjoin(Wave, and_(Wave.task_id == Task.id, Wave.number == Task.wave))
    .where(is_in_bound_list(Replica.task_id, "tasks"))
    .order_by(Replica.worker)
    .execution_options(autoflush=False)
)
_WITH_WORKERS: Final = (
    _REPLICAS.add_columns(Worker, Round)
    .join(Worker, Worker.address == Replica.worker)
    .outerjoin(Round, and_(Round.job_id == Task.job_id, Round.number == Task.merge_round))
)


def of_tasks(reader: RowReader, tasks: Sequence[Task]) -> dict[str, TaskInHand]:
    """Returns each task in hand by its id, as this transaction has left the rows, whether flushed yet or not."""
    return _in_hand(reader, [(task, reader.get_one(Job, task.job_id)) for task in tasks])


def of_task(reader: RowReader, task: Task, job: Job) -> TaskInHand:
    return _in_hand(reader, [(task, job)])[task.id]


def of_replicas(
    work: Work, workers: Iterable[str], replicas: Collection[str], to_pay: bool = False
) -> dict[str, ReplicaInHand]:
    """Returns these replicas of the workers by their ids; locks their tasks, and their jobs as `claimed_task` does.

    `to_pay`: with the rounds and workers of their tasks.
    """
    if not replicas:
        return {}
    asked, locked = set(replicas), _OF_REPLICAS(work, workers=workers, replicas=replicas)
    if to_pay:
        hands = {task.id: TaskInHand(task, job, None, []) for task, job in locked}
        joined = work.session.execute(_WITH_WORKERS, {"tasks": list(hands)}) if hands else ()
        for replica, wave, worker, round_ in joined:
            hand = hands[replica.task_id]
            hand.replicas.append(replica)
            hand.wave, hand.round, hand.workers[worker.address] = wave, round_, worker
    else:
        hands = _in_hand(work, locked)
    return {row.id: ReplicaInHand(row, hand) for hand in hands.values() for row in hand.replicas if row.id in asked}


def lock_task_if_free(work: Work, task_id: str) -> TaskInHand | None:
    """Locks the task and its job, for callers that go through many; returns None where another transaction has the
    task.
    """
    claimed = claimed_task(work, task_id)
    return None if claimed is None else of_task(work, *claimed)


def _in_hand(reader: RowReader, tasks: Sequence[tuple[Task, Job]]) -> dict[str, TaskInHand]:
    hands = {task.id: TaskInHand(task, job, None, []) for task, job in tasks}
    for replica, wave in reader.session.execute(_REPLICAS, {"tasks": list(hands)}) if hands else ():
        hand = hands[replica.task_id]
        hand.replicas.append(replica)
        hand.wave = wave
    return hands


_OWN: Final = select(Replica.task_id).where(
    is_in_bound_list(Replica.id, "replicas"), is_in_bound_list(Replica.worker, "workers")
)
_OF_REPLICAS: Final = LockedTasks(select(Task).where(Task.id.in_(_OWN)))


@dataclass(slots=True, frozen=True)
class OwnReplica:
    """A replica as an upload needs it, with its task, its job, and its wave once that is closed."""

    replica: Replica
    task: Task
    job: Job
    wave: Wave | None


def own_replicas(reader: RowReader, replicas: Sequence[str]) -> Mapping[str, OwnReplica]:
    """Returns the replicas that exist by their ids, without a lock; a job's large spec is loaded when read."""
    rows = reader.session.execute(_WHOLE, {"replicas": replicas}).all()
    return {row.id: OwnReplica(row, task, job, wave) for row, task, job, wave in rows}


_WHOLE: Final = (
    select(Replica, Task, Job, Wave)
    .options(defer(Job.spec))
    .join(Task, Task.id == Replica.task_id)
    .join(Job, Job.id == Replica.job_id)
    .outerjoin(Wave, and_(Wave.task_id == Task.id, Wave.number == Task.wave))
    .where(is_in_bound_list(Replica.id, "replicas"))
)
