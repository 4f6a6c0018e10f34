"""Routes for payments: who earned what, and how far each payment has been settled on-chain."""

from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Path, Request
from sqlalchemy import bindparam, func, select

from gradmarket.market import signing
from gradmarket.market.errors import NotFound
from gradmarket.market.terms import ReplicaState
from gradmarket.market.views.job_views import Stats
from gradmarket.market.views.page_view import Page
from gradmarket.market.views.payment_views import EarningsView, PaymentView, StakeView, WorkerView
from gradmarket.market.wire import SignedVoucher
from gradmarket.requester.api import auth_routes
from gradmarket.requester.api.job_routes import NO_JOB, JobPath, found
from gradmarket.requester.api.pages import Cursor, Limit, from_there, page, turned
from gradmarket.requester.api.problems import answers
from gradmarket.requester.api.response_cache import CachedAnswers, Source
from gradmarket.requester.api.state import Here
from gradmarket.requester.api.views.formats import amount, time
from gradmarket.requester.api.views.payment_views import PAYMENT, payment_view, settlement_view, strikes_view
from gradmarket.requester.api.views.trust_views import reputation_view
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import receipts
from gradmarket.requester.store import answers as answers_of
from gradmarket.requester.store import disclosure, progress, reputations, strikes, workers
from gradmarket.requester.store.answers import History
from gradmarket.requester.store.tables import Account, Batch, Earned, Job, Replica, Round, Task, Transaction, Worker
from gradmarket.requester.store.work import RowReader

router = APIRouter(prefix="/v1", tags=["payments"])

Address = Annotated[str, Path(pattern=r"^0x[0-9a-fA-F]{40}$")]


def _batch(reader: RowReader, batch_id: int | None) -> tuple[Batch | None, Transaction | None]:
    batch = reader.get(Batch, batch_id) if batch_id is not None else None
    sent = batch is not None and batch.transaction_id is not None
    return batch, reader.get(Transaction, batch.transaction_id) if batch and sent else None


@router.get("/jobs/{job_id}/payments", responses=NO_JOB, summary="One line for every gradient that earned")
def payments(context: Here, job_id: JobPath, limit: Limit, cursor: Cursor = None) -> Page[PaymentView]:
    with context.reading() as reader:
        job = found(reader, job_id)
        disclosed = disclosure.of_job(reader, job)
        rows = (
            select(*PAYMENT)
            .join(Task, Task.id == Earned.task_id)
            .outerjoin(Batch, Batch.id == Earned.batch_id)
            .outerjoin(Transaction, Transaction.id == Batch.transaction_id)
            .where(Earned.job_id == job_id)
        )
        shown, more = turned(
            reader.session.execute(from_there(rows, [Earned.id], cursor, limit)).all(), [Earned.id], limit
        )
        return Page(items=[payment_view(row, job.unit, disclosed.of(row)) for row in shown], next=more)


@router.get(
    "/jobs/{job_id}/stats", responses=NO_JOB, summary="Counts of rounds, tasks, replicas, bytes and settlements"
)
async def stats(context: Here, request: Request, source: Source, job_id: JobPath) -> Stats:
    kept: CachedAnswers[Stats] = request.app.state.stats
    return await kept.get(job_id, source, lambda: _stats(context, job_id))


def _stats(context: Context, job_id: str) -> Stats:
    with context.reading() as reader:
        job = found(reader, job_id)
        states = progress.counts(reader, job_id)
        uploaded = reader.session.execute(
            select(func.count(Task.payload_bytes), func.coalesce(func.sum(Task.payload_bytes), 0)).where(
                Task.job_id == job_id
            )
        ).one()
        first = reader.session.scalar(select(func.min(Earned.at)).where(Earned.job_id == job_id))
        batches = reader.session.scalars(select(Batch).where(Batch.job_id == job_id).order_by(Batch.number)).all()
        accepted = select(func.count()).select_from(Task).where(Task.job_id == job_id, Task.payload.is_not(None))
        computed = select(func.sum(Replica.compute_seconds)).where(Replica.job_id == job_id)
        return Stats(
            rounds=reader.session.scalar(select(func.count()).select_from(Round).where(Round.job_id == job_id)) or 0,
            tasks=reader.session.scalar(accepted) or 0,
            accepted=states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0),
            rejected=states.get(ReplicaState.REJECTED, 0),
            replicas=states,
            uploads=uploaded[0],
            payload_bytes=uploaded[1],
            compute_seconds=reader.session.scalar(computed) or 0.0,
            first_accepted_seconds=None if first is None else first - job.created_at,
            settlements=[settlement_view(*_settled(reader, batch), job.unit) for batch in batches],
        )


def _settled(reader: RowReader, batch: Batch) -> tuple[Batch, Transaction | None]:
    return batch, _batch(reader, batch.id)[1]


def _known(reader: RowReader, address: str) -> Worker:
    worker = reader.get(Worker, signing.checksum(address))
    if worker is None:
        raise NotFound(f"no worker {address} has signed in")
    return worker


@router.get("/workers/{address}", responses=answers(404), tags=["workers"], summary="What is known of a worker")
def worker(context: Here, request: Request, source: Source, address: Address) -> WorkerView:
    now, kept = context.clock(), request.app.state.histories  # what is counted over all its answers
    with context.reading() as reader:
        row = _known(reader, address)
        history: History = kept.get(row.address, "", source, lambda: answers_of.history(reader, row.address))
        return WorkerView(
            address=row.address,
            payout=row.payout,
            determinism_class=row.determinism_class,
            seen_at=time(row.seen_at),
            joined_at=time(row.joined_at),
            strikes=[strikes_view(record, now) for record in strikes.of(reader, row.operator)],
            operator=row.operator,
            proven=row.operator == row.payout,
            barred=bool(workers.barred(reader, [row], now)),
            copies=history.copies,
            reputation=[reputation_view(record, now) for record in reputations.of(reader, row.operator)],
            stakes=stakes_of(reader, row.address),
            replicas=dict(history.replicas),
        )


def stakes_of(reader: RowReader, address: str) -> list[StakeView]:
    found = reader.session.execute(_STAKES, {"worker": address})
    return [StakeView(job=job, chain_job=number, at_risk=amount(units, unit)) for job, number, units, unit in found]


_STAKES: Final = (
    select(Job.id, Job.chain_job, Account.at_risk, Job.unit)
    .join(Job, Job.id == Account.job_id)
    .where(Account.worker == bindparam("worker"), Account.at_risk > 0)
    .order_by(Job.created_at)
)


def _own(address: str, caller: str) -> None:
    if address.lower() != caller.lower():
        raise HTTPException(403, "these are another worker's: sign in as it")


@router.get(
    "/workers/{address}/earnings", responses=auth_routes.ROLE, tags=["workers"], summary="What you earned, by job"
)
def earnings(
    context: Here, caller: auth_routes.Worker, address: Address, limit: Limit, cursor: Cursor = None
) -> Page[EarningsView]:
    _own(address, caller)
    with context.reading() as reader:

        def line(account: Account) -> EarningsView:
            job = reader.get_one(Job, account.job_id)
            return EarningsView(
                job=job.id,
                chain_job=job.chain_job,
                earned=amount(account.earned, job.unit),
                reserved=amount(account.reserved, job.unit),
                settled=amount(account.settled, job.unit),
                withdrawn=amount(account.withdrawn, job.unit),
            )

        rows = select(Account).where(Account.worker == caller)
        return page(reader, rows, [Account.job_id], line, cursor, limit)


@router.get(
    "/workers/{address}/vouchers",
    responses=auth_routes.ROLE,
    tags=["workers"],
    summary="Your newest voucher of every job",
)
def vouchers(
    context: Here, caller: auth_routes.Worker, address: Address, limit: Limit, cursor: Cursor = None
) -> Page[SignedVoucher]:
    _own(address, caller)
    with context.reading() as reader:
        rows = select(Account).where(Account.worker == caller, Account.voucher_signature.is_not(None))

        def line(account: Account) -> SignedVoucher:
            voucher = receipts.voucher(account, reader.get_one(Job, account.job_id))
            if voucher is None:
                raise NotFound("the voucher is gone")
            return voucher

        return page(reader, rows, [Account.job_id], line, cursor, limit)
