"""Views of a job, its rounds and its counts."""

from collections.abc import Mapping

from pydantic import BaseModel

from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.rules.faults import StepFault
from gradmarket.market.terms import JobState, ReplicaState, RoundState
from gradmarket.requester.api.views.formats import amount, time
from gradmarket.requester.api.views.payment_views import SettlementView
from gradmarket.requester.store import jobs
from gradmarket.requester.store.tables import Job, Round


class Costs(BaseModel):
    """`price`: of a gradient in the newest round; of a draft, at most. `at_most`: every replica of every task is asked
    for and agrees, each at the highest price. `deposited` is what the contract holds of it."""

    price: str
    at_most: str
    budget: str
    deposited: str
    earned: str
    refunded: str


class FaultView(BaseModel):
    """What `parties` separate workers could not compute, in the words of one of them."""

    fault: StepFault
    round: int
    task: int
    parties: int


class JobView(BaseModel):
    id: str
    name: str
    state: JobState
    reason: str
    """Why the job makes no progress, or why it ended."""
    fault: FaultView | None
    """The fault that paused the job, if its document or data are at fault."""
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
    class_proven: bool
    """Whether audits confirmed three operators in that class; until then tasks that one replica decides are audited."""
    task_flops: int | None
    task_peak_bytes: int | None
    expiry: str | None
    claim_until: str | None
    created_at: str | None
    ended_at: str | None


NOTICE = "Workers see the model and the training data of this job."


def job_view(
    job: Job, spec: JobSpec, newest: Round | None, earned: int, states: Mapping[str, int], reason: str
) -> JobView:
    flops, peak_bytes = jobs.costs(job) or (None, None)
    publication = jobs.publication(job)
    paid = states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0)
    return JobView(
        id=job.id,
        name=spec.name,
        state=JobState(job.state),
        reason=reason,
        fault=FaultView.model_validate(job.fault) if job.fault else None,
        notice=NOTICE,
        spec=spec,
        publication=publication,
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
        parameters=newest.updated if newest else publication and publication.parameters,
        determinism_class=job.determinism_class,
        class_proven=job.proven_class is not None and job.proven_class == job.determinism_class,
        task_flops=flops,
        task_peak_bytes=peak_bytes,
        expiry=time(job.expiry),
        claim_until=time(job.claim_until),
        created_at=time(job.created_at),
        ended_at=time(job.ended_at),
    )


class DriftView(BaseModel):
    """Of how many `operators` the merges up to this one could say whether their accepted answers push the model one
    way; those who do by more than honest errors could are `leaning`. How near the others are is not told."""

    operators: int
    leaning: list[str]


class RoundView(BaseModel):
    number: int
    state: RoundState
    price: str
    """The price of each of its gradients."""
    parameters: str
    updated: str | None
    loss: float | None
    metrics: dict[str, float] | None
    drift: DriftView | None
    opened_at: str | None
    closed_at: str | None


def round_view(row: Round, unit: str) -> RoundView:
    return RoundView(
        number=row.number,
        state=RoundState(row.state),
        price=amount(row.price, unit),
        parameters=row.parameters,
        updated=row.updated,
        loss=row.loss,
        metrics=row.metrics,
        drift=DriftView(**row.drift) if row.drift else None,
        opened_at=time(row.opened_at),
        closed_at=time(row.closed_at),
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
