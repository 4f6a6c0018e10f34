"""Holders that take part in private jobs with rows of their own, and those that get no further task there.

The rules are private.private_faults of the market.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import and_, bindparam, or_, select

from gradmarket.market.features.private import holder_rows as rules
from gradmarket.market.rules.lifecycle import IN_FLIGHT, PAID
from gradmarket.market.terms import Address, ReplicaState
from requester.store import jobs
from requester.store.among import is_in_bound_list
from requester.store.round_sum import find_round_sum
from requester.store.tables import Holder, Job, Replica, Task
from requester.store.work import RowReader, Work


def record_holder(work: Work, job_id: str, worker: Address, rows: int | None, now: float) -> tuple[int | None, bool]:
    """Records that the worker takes part; returns its first number of rows, and whether it is new.

    The weights of its answers in merges must not change: merges are repeated from the payloads after a crash.
    """
    known = work.get(Holder, (job_id, worker))
    if known is None:
        work.add(Holder(job_id=job_id, worker=worker, rows=rows, joined_at=now))
        return rows, True
    return known.rows, False


_OF_JOB: Final = Holder.job_id == bindparam("job")


def describe_absence(reader: RowReader, job: Job) -> str:
    """Returns how many of a private job's holders have joined, and how another does."""
    joined = len(reader.session.scalars(select(Holder.worker).where(_OF_JOB), {"job": job.id}).all())
    listed = "" if (data := jobs.load_spec(job).private) is None else f"{joined} of {len(data.holders)} holders"
    return f"no holder's worker is here, {listed} have joined: `gradmarket worker run --dataset FOLDER --for {job.id}`"


def list_unavailable_by_round(reader: RowReader, job: Job, tasks: Sequence[Task]) -> dict[int, frozenset[Address]]:
    """Returns by the tasks' rounds the workers that get no further task there.

    Each answers once in a round of a private job, and one whose answer was refused gets none in any round: an honest
    one is within the bounds.
    """
    rounds = {task.round for task in tasks}
    rows = reader.session.execute(_BUSY, {"job": job.id, "rounds": list(rounds)}).all()
    refused = {worker for worker, _, state in rows if state == ReplicaState.REJECTED}
    if (summed := find_round_sum(reader, jobs.load_spec(job))) is not None:
        refused |= {worker for number in rounds for worker in summed.list_shut_out(reader, job, number)}
    return {number: frozenset(refused | {worker for worker, of, _ in rows if of == number}) for number in rounds}


_BUSY: Final = (
    select(Replica.worker, Task.round, Replica.state)
    .join(Task, Task.id == Replica.task_id)
    .where(
        Replica.job_id == bindparam("job"),
        or_(
            Replica.state == ReplicaState.REJECTED,
            and_(Replica.state.in_((*IN_FLIGHT, *PAID)), Task.round.in_(bindparam("rounds", expanding=True))),
        ),
    )
)


def compute_merge_weights(reader: RowReader, job: Job, tasks: Sequence[Task]) -> tuple[float, ...]:
    """Returns the merge's factors of the tasks' answers: 1 unless they weigh by their holders' rows."""
    data = jobs.load_spec(job).private
    if data is None or data.rows_cap is None:
        return (1.0,) * len(tasks)
    return rules.compute_row_scales(_list_weighed_rows(reader, job, tasks, data.least_rows, data.rows_cap))


def compute_pot_weight(reader: RowReader, job: Job, tasks: Sequence[Task]) -> float:
    """Returns the number of answers for which a round of these tasks pays by worth (rules.pricing.worth)."""
    data = jobs.load_spec(job).private
    if data is None or data.rows_cap is None:
        return len(tasks)
    rows = _list_weighed_rows(reader, job, tasks, data.least_rows, data.rows_cap)
    return rules.compute_pot_weight(rows, data.rows_cap)


def _list_weighed_rows(reader: RowReader, job: Job, tasks: Sequence[Task], least: int, cap: int) -> list[int]:
    replicas = [task.uploader or "" for task in tasks]
    rows_by_worker = dict(reader.session.execute(_TOLD, {"job": job.id, "replicas": replicas}).all())
    return [rules.count_weighed_rows(rows_by_worker.get(replica), least, cap) for replica in replicas]


_TOLD: Final = (
    select(Replica.id, Holder.rows)
    .join(Holder, and_(Holder.job_id == Replica.job_id, Holder.worker == Replica.worker))
    .where(_OF_JOB, is_in_bound_list(Replica.id, "replicas"))
)
