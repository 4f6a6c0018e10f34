"""A gradient's story: the published evidence of a task and its payments. The browser verifies it by itself."""

from dataclasses import dataclass

from gradmarket.market.errors import NotFound
from gradmarket.market.features.records import TaskEvidence
from gradmarket.market.money import TokenUnit
from requester.context import Context
from requester.features.pages import overview
from requester.features.records.evidence_routes import evidence_of
from requester.store import jobs
from requester.store.tables import Job, Task
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class Paid:
    """The pay of one replica of the task, and the batch that carries it."""

    replica: str
    worker: str
    amount: str
    units: int
    revoked: bool
    at: float
    batch: int | None
    batch_state: str | None
    tx: str | None
    block: int | None


@dataclass(frozen=True, slots=True)
class StoryPage:
    job: Job
    name: str
    evidence: TaskEvidence
    price: str
    payments: list[Paid]


def build_story_page(context: Context, reader: RowReader, job_id: str, task_id: str) -> StoryPage:
    """Raises NotFound where the job has no such task."""
    task = reader.get(Task, task_id)
    if task is None or task.job_id != job_id:
        raise NotFound(f"no task {task_id[:80]} in job {job_id[:80]}")
    job = reader.get_one(Job, job_id)
    token, unit = TokenUnit.of(context.chain_facts), int(job.unit)
    payments = [
        Paid(
            replica=row.replica_id,
            worker=row.worker,
            amount=token.text(row.units * unit),
            units=row.units,
            revoked=row.revoked,
            at=row.at,
            batch=row.number,
            batch_state=row.batch_state,
            tx=row.tx,
            block=row.block,
        )
        for row in overview.payments_of(reader, task_id)
    ]
    return StoryPage(
        job=job,
        name=jobs.load_spec(job).name,
        evidence=evidence_of(reader, task),
        price=token.text(task.offer.price * unit),
        payments=payments,
    )
