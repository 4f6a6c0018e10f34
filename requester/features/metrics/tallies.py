"""Metrics from the rows: read at scrape time by grouped queries on indexes, so that no restart loses a count.

Every process that shares the database reports the same: in a query take `max`, not `sum`, over instances.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute

from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.feature import features_of
from requester.store import workers
from requester.store.tables import (
    Account,
    Batch,
    Earned,
    Job,
    Replica,
    Round,
    Task,
    Transaction,
    Wave,
    Worker,
)
from requester.store.work import RowReader

VERDICTS: Final = {
    ReplicaState.PAYABLE: "accepted",
    ReplicaState.REJECTED: "rejected",
    ReplicaState.DIVERGED: "diverged",
    ReplicaState.INCONCLUSIVE: "inconclusive",
    ReplicaState.WITHHELD: "withheld",
    ReplicaState.TOO_LATE: "too_late",
}
"""How replicas that had an answer ended, by state."""
ENDED: Final = (JobState.FINISHED, JobState.CANCELLED, JobState.FAILED)
STATES: Final = {
    "jobs": (Job.state, "Jobs by state"),
    "rounds": (Round.state, "Rounds by state"),
    "tasks": (Task.state, "Tasks by state"),
    "replicas": (Replica.state, "Replicas by state"),
    "batches": (Batch.state, "Settlement batches by state"),
    "transactions": (Transaction.state, "Transactions of the sender by state"),
}
MONEY: Final = ("deposited", "refunded", "earned", "settled", "withdrawn")


def collect_metrics(reader: RowReader, now: float, waits: Mapping[str, float] | None = None) -> Iterator[Metric]:
    """Yields all metrics, from one snapshot. Money is in the token's smallest unit.

    `waits`: the lags of the stages whose rows do not record since when they are ready (StageWaits).
    """
    counted = {
        name: dict(reader.session.execute(select(column, func.count()).group_by(column)).all())
        for name, (column, _) in STATES.items()
    }
    for name, (_, text) in STATES.items():
        yield _build_gauges(f"gradmarket_{name}", text, "state", counted[name])
    replicas = counted["replicas"]
    yield _build_counter("gradmarket_leases", "Leases given", sum(replicas.values()))
    yield _build_counter("gradmarket_waves", "Waves closed", _count_rows(reader, Wave.task_id))
    family = CounterMetricFamily("gradmarket_verdicts", "How replicas with an answer ended", labels=["kind"])
    for state, kind in VERDICTS.items():
        family.add_metric([kind], replicas.get(state, 0))
    yield family
    yield GaugeMetricFamily("gradmarket_workers", "Workers that ever signed in", _count_rows(reader, Worker.address))
    asking = _count_rows(reader, Worker.address, workers.ASKS, now=now)
    yield GaugeMetricFamily("gradmarket_workers_asking", "Workers that ask for a lease now", asking)
    # the money left in a job that has not ended is neither refunded nor earned
    sums = dict.fromkeys(MONEY, 0)
    left = GaugeMetricFamily("gradmarket_escrow_left", "Deposited and not yet earned, smallest units", labels=["job"])
    of_accounts = [func.coalesce(func.sum(kind), 0) for kind in (Account.earned, Account.settled, Account.withdrawn)]
    of_jobs = (Job.id, Job.state, Job.unit, Job.deposited, Job.refunded)
    rows = select(*of_jobs, *of_accounts).outerjoin(Account, Account.job_id == Job.id).group_by(*of_jobs)
    for job_id, job_state, unit, *amounts in reader.session.execute(rows):
        money = dict(zip(MONEY, (int(amount) * int(unit) for amount in amounts), strict=True))
        for name, amount in money.items():
            sums[name] += amount
        if job_state not in ENDED:
            left.add_metric([job_id], money["deposited"] - money["refunded"] - money["earned"])
    for name, total in sums.items():
        yield _build_counter(f"gradmarket_{name}", f"Smallest token units {name}, all jobs", total)
    yield left
    for feature in features_of(reader):
        yield from feature.metrics(reader, now)
    yield _build_gauges(
        "gradmarket_stage_lag_seconds",
        "How long the oldest row has waited",
        "stage",
        compute_stage_lags(reader, now) | dict(waits or {}),
    )


def _count_rows(reader: RowReader, column: InstrumentedAttribute[Any], *where: Any, **named: Any) -> int:
    return reader.session.scalar(select(func.count(column)).where(*where), named) or 0


def _build_gauges(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, description, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _build_counter(name: str, description: str, value: float) -> Metric:
    return CounterMetricFamily(name, description, value=value)


def compute_stage_lags(reader: RowReader, now: float) -> dict[str, float]:
    """Returns the seconds since the oldest row of each stage could have been moved on, or was due; 0 where none waits.

    `assign` counts from a task's opening, so it also shows a market without workers; `aggregate` from the oldest
    accepted gradient, so it also shows a round that waits for its last task.
    """
    since = {
        "publish": select(func.min(Job.created_at)).where(Job.state == JobState.DRAFT),
        "assign": select(func.min(Task.created_at)).where(
            Task.state == TaskState.OPEN, _build_running_condition(Task.job_id)
        ),
        "close": select(func.min(Task.due_at)).where(Task.state.in_([TaskState.OPEN, TaskState.COMMITTING])),
        "judge": select(func.min(Task.due_at)).where(Task.state == TaskState.REVEALING),
        "expire": select(func.min(Replica.lease_until)).where(Replica.state == ReplicaState.LEASED),
        "aggregate": select(func.min(Task.ended_at)).where(
            Task.state == TaskState.ACCEPTED, _build_running_condition(Task.job_id)
        ),
        "settle": select(func.min(Earned.at)).where(
            Earned.job_id.in_(select(Job.id)), Earned.batch_id.is_(None), Earned.waits.is_(False)
        ),
    }
    oldest = {stage: reader.session.scalar(statement) for stage, statement in since.items()}
    return {stage: max(0.0, now - at) if at is not None else 0.0 for stage, at in oldest.items()}


def _build_running_condition(job_id: InstrumentedAttribute[str]) -> Any:
    return job_id.in_(select(Job.id).where(Job.state == JobState.RUNNING))
