"""What the API shows of the rows: amounts as decimal strings in smallest units, times ISO 8601 UTC."""

from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.terms import JobState, ReplicaState, RoundState, TaskState
from gradmarket.requester.store.tables import (
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

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """`next` goes into `?cursor=` for what follows; none at the end."""

    items: list[Item]
    next: str | None


def time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def hexed(value: bytes | None) -> str | None:
    return None if value is None else "0x" + value.hex()


def amount(units: int, unit: str) -> str:
    return str(units * int(unit))


class Costs(BaseModel):
    """`at_most`: every replica of every task is asked for and agrees. `deposited` is what the contract holds of it."""

    price: str
    at_most: str
    budget: str
    deposited: str
    earned: str
    refunded: str


class JobView(BaseModel):
    id: str
    name: str
    state: JobState
    reason: str
    """Why it does not get on, or why it ended."""
    notice: str
    spec: JobSpec
    publication: Publication | None
    spec_digest: str | None
    chain_job: int | None
    unit: str
    costs: Costs
    round: int | None
    rounds: int
    accepted: int
    rejected: int
    loss: float | None
    metrics: dict[str, float] | None
    parameters: str | None
    """Digest of the newest parameters."""
    determinism_class: str | None
    task_flops: int | None
    task_peak_bytes: int | None
    expiry: str | None
    claim_until: str | None
    created_at: str | None
    ended_at: str | None


NOTICE = "Workers see the model and the training data of this job."


def job_view(
    job: Job, spec: JobSpec, newest: Round | None, earned: int, states: dict[str, int], reason: str
) -> JobView:
    facts = job.facts or {}
    paid = states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0)
    return JobView(
        id=job.id,
        name=spec.name,
        state=JobState(job.state),
        reason=reason,
        notice=NOTICE,
        spec=spec,
        publication=Publication.model_validate(job.publication) if job.publication else None,
        spec_digest=job.spec_digest,
        chain_job=job.chain_job,
        unit=job.unit,
        costs=Costs(
            price=amount(job.price, job.unit),
            at_most=str(spec.most_expensive),
            budget=amount(job.budget, job.unit),
            deposited=amount(job.deposited, job.unit),
            earned=amount(earned, job.unit),
            refunded=amount(job.refunded, job.unit),
        ),
        round=newest.number if newest else None,
        rounds=spec.rounds,
        accepted=paid,
        rejected=states.get(ReplicaState.REJECTED, 0),
        loss=newest.loss if newest else None,
        metrics=newest.metrics if newest else None,
        parameters=newest.updated if newest else (job.publication or {}).get("parameters"),
        determinism_class=job.determinism_class,
        task_flops=facts.get("flops"),
        task_peak_bytes=facts.get("peak_bytes"),
        expiry=time(job.expiry),
        claim_until=time(job.claim_until),
        created_at=time(job.created_at),
        ended_at=time(job.ended_at),
    )


class RoundView(BaseModel):
    number: int
    state: RoundState
    parameters: str
    updated: str | None
    loss: float | None
    metrics: dict[str, float] | None
    opened_at: str | None
    closed_at: str | None


def round_view(row: Round) -> RoundView:
    return RoundView(
        number=row.number,
        state=RoundState(row.state),
        parameters=row.parameters,
        updated=row.updated,
        loss=row.loss,
        metrics=row.metrics,
        opened_at=time(row.opened_at),
        closed_at=time(row.closed_at),
    )


class ReplicaView(BaseModel):
    """Ballots, salts and signatures are shown once the task is over, when nobody can copy them."""

    id: str
    worker: str
    payout: str
    state: ReplicaState
    wave: int
    reason: str
    leased_at: str | None
    committed_at: str | None
    compute_seconds: float | None
    sealed: str | None
    commitment_signature: str | None
    salt: str | None
    root: str | None
    outcome: int | None
    verdict_signature: str | None


def replica_view(row: Replica, shown: bool) -> ReplicaView:
    return ReplicaView(
        id=row.id,
        worker=row.worker,
        payout=row.payout,
        state=ReplicaState(row.state),
        wave=row.wave,
        reason=row.reason,
        leased_at=time(row.leased_at),
        committed_at=time(row.committed_at),
        compute_seconds=row.compute_seconds,
        sealed=hexed(row.sealed) if shown else None,
        commitment_signature=hexed(row.signature) if shown else None,
        salt=hexed(row.salt) if shown else None,
        root=row.root if shown else None,
        outcome=row.outcome,
        verdict_signature=hexed(row.verdict_signature) if shown else None,
    )


class WaveView(BaseModel):
    number: int
    secret: str | None
    commitments: str | None
    seed: str | None
    signature: str | None
    closed_at: str | None


def wave_view(row: Wave) -> WaveView:
    return WaveView(
        number=row.number,
        secret=hexed(row.secret),
        commitments=hexed(row.commitments),
        seed=hexed(row.seed),
        signature=hexed(row.signature),
        closed_at=time(row.closed_at),
    )


class TaskView(BaseModel):
    id: str
    round: int
    index: int
    attempt: int
    state: TaskState
    wave: int
    reason: str
    root: str | None
    payload_bytes: int | None
    used: bool
    created_at: str | None
    ended_at: str | None


def task_view(row: Task) -> TaskView:
    return TaskView(**_task_fields(row))


def _task_fields(row: Task) -> dict[str, Any]:
    return {
        "id": row.id,
        "round": row.round,
        "index": row.index,
        "attempt": row.attempt,
        "state": TaskState(row.state),
        "wave": row.wave,
        "reason": row.reason,
        "root": row.root,
        "payload_bytes": row.payload_bytes,
        "used": row.used,
        "created_at": time(row.created_at),
        "ended_at": time(row.ended_at),
    }


class TaskEvidence(TaskView):
    """All that a verdict rests on: offer, waves, and every replica with its ballot once the task is over."""

    offer: dict[str, Any]
    offer_digest: str | None
    offer_signature: str | None
    waves: list[WaveView]
    replicas: list[ReplicaView]


def evidence(row: Task, waves: list[Wave], replicas: list[Replica]) -> TaskEvidence:
    shown = row.ended_at is not None
    return TaskEvidence(
        **_task_fields(row),
        offer=row.offer,
        offer_digest=hexed(row.offer_digest),
        offer_signature=hexed(row.offer_signature),
        waves=[wave_view(wave) for wave in waves],
        replicas=[replica_view(replica, shown) for replica in replicas],
    )


class VerdictView(BaseModel):
    task: str
    replica: str
    worker: str
    state: ReplicaState
    outcome: int | None
    reason: str
    signature: str | None


def verdict_view(row: Replica) -> VerdictView:
    return VerdictView(
        task=row.task_id,
        replica=row.id,
        worker=row.worker,
        state=ReplicaState(row.state),
        outcome=row.outcome,
        reason=row.reason,
        signature=hexed(row.verdict_signature),
    )


class JobWorkerView(BaseModel):
    """One worker's standing in one job; amounts in smallest units."""

    address: str
    payout: str
    accepted: int
    rejected: int
    replicas: dict[str, int]
    earned: str
    reserved: str
    settled: str
    withdrawn: str


def job_worker_view(account: Account, worker: Worker, unit: str, states: dict[str, int]) -> JobWorkerView:
    return JobWorkerView(
        address=account.worker,
        payout=worker.payout,
        accepted=states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0),
        rejected=states.get(ReplicaState.REJECTED, 0),
        replicas=states,
        earned=amount(account.earned, unit),
        reserved=amount(account.reserved, unit),
        settled=amount(account.settled, unit),
        withdrawn=amount(account.withdrawn, unit),
    )


class PaymentView(BaseModel):
    """One accepted gradient and the batch that carries it on-chain."""

    id: int
    worker: str
    task: str
    replica: str
    amount: str
    payload_root: str | None
    batch: int | None
    batch_state: str | None
    tx: str | None
    at: str | None


def payment_view(row: Earned, batch: Batch | None, tx: Transaction | None, unit: str) -> PaymentView:
    return PaymentView(
        id=row.id,
        worker=row.worker,
        task=row.task_id,
        replica=row.replica_id,
        amount=amount(row.units, unit),
        payload_root=hexed(row.digest),
        batch=batch.number if batch else None,
        batch_state=batch.state if batch else None,
        tx=tx.hash if tx else None,
        at=time(row.at),
    )


class SettlementView(BaseModel):
    batch: int
    state: str
    tx: str | None
    gas: int | None
    block: int | None
    gradients: int
    amount: str


def settlement_view(batch: Batch, tx: Transaction | None, unit: str) -> SettlementView:
    return SettlementView(
        batch=batch.number,
        state=batch.state,
        tx=tx.hash if tx else None,
        gas=tx.gas if tx else None,
        block=tx.block if tx else None,
        gradients=batch.gradients,
        amount=amount(batch.units, unit),
    )


class Stats(BaseModel):
    rounds: int
    tasks: int
    accepted: int
    rejected: int
    replicas: dict[str, int]
    uploads: int
    payload_bytes: int
    compute_seconds: float
    first_accepted_seconds: float | None
    settlements: list[SettlementView]


class WorkerView(BaseModel):
    address: str
    payout: str
    determinism_class: str
    seen_at: str | None
    joined_at: str | None
    strikes: int
    replicas: dict[str, int]


class EarningsView(BaseModel):
    """Per job: what was earned, and how far settlement has come."""

    job: str
    chain_job: int | None
    earned: str
    reserved: str
    settled: str
    withdrawn: str


class EventView(BaseModel):
    id: int
    kind: str
    body: dict[str, Any]
    at: str | None
