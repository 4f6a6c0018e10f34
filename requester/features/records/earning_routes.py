"""Routes for a worker's own earnings and vouchers."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from sqlalchemy import select

from gradmarket.market.errors import NotFound
from gradmarket.market.fields import ADDRESS, DeferredModel
from gradmarket.market.views.service_views import Page
from gradmarket.market.wire.poll import SignedVoucher
from requester.api import auth_routes
from requester.api.auth_routes import Here
from requester.api.job_views import format_amount
from requester.api.paging import Cursor, Limit, load_list_page
from requester.exchange import outbox
from requester.store.tables import Account, Job


class EarningsView(DeferredModel):
    """Per job: the earnings, and how far settlement has come."""

    job: str
    chain_job: int | None
    earned: str
    waiting: str
    reserved: str
    settled: str
    withdrawn: str


router = APIRouter(prefix="/v1", tags=["payments"])

Address = Annotated[str, Path(pattern=ADDRESS)]


def _check_own_address(address: str, caller: str) -> None:
    if address.lower() != caller.lower():
        raise HTTPException(403, "only their owner may read these: sign in with its key")


@router.get(
    "/workers/{address}/earnings",
    operation_id="list_earnings",
    responses=auth_routes.ROLE,
    tags=["workers"],
    summary="Your earnings, by job",
)
def earnings(
    context: Here, caller: auth_routes.Earner, address: Address, limit: Limit, cursor: Cursor = None
) -> Page[EarningsView]:
    _check_own_address(address, caller)
    with context.reading() as reader:

        def line(account: Account) -> EarningsView:
            job = reader.get_one(Job, account.job_id)
            return EarningsView(
                job=job.id,
                chain_job=job.chain_job,
                earned=format_amount(account.earned, job.unit),
                waiting=format_amount(account.waiting, job.unit),
                reserved=format_amount(account.reserved, job.unit),
                settled=format_amount(account.settled, job.unit),
                withdrawn=format_amount(account.withdrawn, job.unit),
            )

        rows = select(Account).where(Account.worker == caller)
        return load_list_page(reader, rows, [Account.job_id], line, cursor, limit)


@router.get(
    "/workers/{address}/vouchers",
    operation_id="list_vouchers",
    responses=auth_routes.ROLE,
    tags=["workers"],
    summary="Your newest voucher of every job",
)
def vouchers(
    context: Here, caller: auth_routes.Earner, address: Address, limit: Limit, cursor: Cursor = None
) -> Page[SignedVoucher]:
    _check_own_address(address, caller)
    with context.reading() as reader:
        rows = select(Account).where(Account.worker == caller, Account.voucher_signature.is_not(None))

        def line(account: Account) -> SignedVoucher:
            voucher = outbox.build_signed_voucher(account, reader.get_one(Job, account.job_id).chain_job)
            if voucher is None:
                raise NotFound("the voucher does not exist any more")
            return voucher

        return load_list_page(reader, rows, [Account.job_id], line, cursor, limit)
