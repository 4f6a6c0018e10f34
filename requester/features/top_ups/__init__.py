"""Top-ups: the route that raises a job's budget, and the deposit of the difference.

The route also returns the transactions to sign if the funds' owner signs elsewhere.
"""

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from sqlalchemy import select

from contracts import calls
from gradmarket.market.errors import IllegalTransition
from gradmarket.market.fields import DeferredModel
from gradmarket.market.rules import payment
from gradmarket.market.rules.lifecycle import AWAITS_TOP_UP, ESCROW_SHORT
from gradmarket.market.terms import Amount, JobState, Units
from gradmarket.market.views.job_views import Funded, JobView
from gradmarket.market.views.payment_views import ToSignView
from requester.api.auth_routes import Here, Submitter
from requester.api.idempotency import Key, done
from requester.api.job_routes import STEER, JobPath, amount_of, job_or_404, load_job_view, lock_own_job
from requester.chain import funding, sender
from requester.chain.chain_context import ChainContext, TransactionKind
from requester.context import Context
from requester.feature import Feature
from requester.moves.admission import lay_out
from requester.moves.resume import record_resumption
from requester.store.tables import Job
from requester.store.work import Work, record_event

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class Deposit(DeferredModel):
    """More money for a job, as in "0.5 GRAD" or in the token's smallest unit; without one, only lists calls to sign."""

    model_config = ConfigDict(extra="forbid")

    amount: Annotated[str, Field(max_length=200)] | None = None


@router.post(
    "/{job_id}/fund", operation_id="fund_job", responses=STEER, summary="Raise the budget; the difference is deposited"
)
def fund(context: Here, identity: Submitter, job_id: JobPath, deposit: Deposit, key: Key = None) -> Funded:
    """A repeated request lists the transactions to sign now, without those signed since."""
    with context.reading() as reader:
        row = job_or_404(reader, job_id)
        amount = Amount(0 if deposit.amount is None else amount_of(context, deposit.amount))
        added = _compute_units(row, amount)
    to_sign = context.chain_worker.to_sign(row, added)  # before anything is changed: the chain may not answer

    def act(work: Work) -> tuple[int, JobView, None]:
        job = lock_own_job(work, job_id, identity)
        if amount:
            if job.ended_at is not None:
                raise IllegalTransition(
                    f"the job is {job.state}: it takes no more money",
                    f"`gradmarket job extend {job.id} --rounds N` posts more rounds"
                    if job.state == JobState.FINISHED
                    else "post it again",
                )
            added = _compute_units(job, amount)
            lay_out(context, work, job, identity.subject, added)
            job.budget += added
            record_event(work, job.id, "budget_raised", context.clock(), amount=str(amount))
            resume_funded_job(context, work, job)
            work.notify("settle")
        return 200, load_job_view(context, work, job), None

    answer = done(context, identity.subject, key, {"fund": job_id, "amount": str(amount)}, act)
    if answer.again:
        with context.reading() as reader:
            row = job_or_404(reader, job_id)
        to_sign = context.chain_worker.to_sign(row)
    views = [
        ToSignView(
            purpose=one.purpose,
            chain_id=one.chain_id,
            owner=one.owner,
            to=one.call.to or "",
            data="0x" + one.call.data.hex(),
            value="0",
        )
        for one in to_sign
    ]
    return Funded(**answer.body, to_sign=views)


def _compute_units(job: Job, amount: Amount) -> Units:
    most = payment.MAX_UNITS - job.budget
    return payment.in_units("amount", amount, Amount(int(job.unit)), most)


def resume_funded_job(context: Context, work: Work, job: Job) -> None:
    """Resumes a job that paused for money, once more is promised: it waits for the deposit, not for a command."""
    if job.state == JobState.PAUSED and job.reason.startswith(ESCROW_SHORT):
        work.set_state_now(job, JobState.RUNNING, reason=AWAITS_TOP_UP)
        record_resumption(work, job, context.clock())


def top_up_jobs(chain: ChainContext) -> bool:
    """Deposits the money added to jobs' budgets; returns whether anything was posted. An owner does this itself."""
    if chain.owner is not None:
        return False
    with chain.reading() as reader:
        raised = select(Job).where(Job.chain_job.is_not(None), Job.ended_at.is_(None), Job.budget > Job.deposited)
        jobs = [
            job
            for job in reader.session.scalars(raised)
            if not sender.under_way(reader, TransactionKind.TOP_UP, job.id)
        ]
    posted = False
    for job in jobs:
        added = Units(job.budget - job.deposited)
        deposit = Amount(added * int(job.unit))
        if not funding.has_money(chain, deposit):
            continue
        if chain.ledger.allowance(chain.sender) < deposit:
            posted |= funding.post_approval(chain)
        else:
            call = calls.top_up(chain.market, job.chain_job or 0, added)
            posted |= funding.post_call(chain, job.id, TransactionKind.TOP_UP, call)
    return posted


class TopUpsFeature(Feature):
    name = "top_ups"
    routers = (router,)
    chain_steps = (top_up_jobs,)
