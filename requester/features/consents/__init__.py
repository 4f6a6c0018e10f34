"""Payout keys take their consents back; a consent itself comes with its worker's sign-in.

Anyone who is signed in may send the payout key's signature; nobody becomes an operator whom the worker did not name.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Path

from gradmarket.market import signing
from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.fields import ADDRESS
from gradmarket.market.messages import Withdrawal
from gradmarket.market.terms import Address
from gradmarket.market.wire.sign_in import OperatorStatus, WithdrawalRequest
from requester.api.auth_routes import ANYONE, Anyone, Here
from requester.api.problems import describe_problems
from requester.feature import Feature
from requester.features.leftovers import leftover_rows
from requester.store import identities
from requester.store.locks import lock_row, retry_on_conflict
from requester.store.tables import ConsentRow, Worker
from requester.store.work import RowReader, Work

router = APIRouter(prefix="/v1", tags=["workers"])

LATER: Final = "send it again once the worker has signed in, or tomorrow"
WorkerPath = Annotated[str, Path(pattern=ADDRESS)]


@router.post(
    "/workers/{address}/withdrawal",
    operation_id="withdraw_consent",
    responses={**ANYONE, **describe_problems(404, 409)},
    summary="A payout key takes its consents for a worker back",
)
@retry_on_conflict
def withdraw(context: Here, _identity: Anyone, address: WorkerPath, withdrawal: WithdrawalRequest) -> OperatorStatus:
    """A consent may be withdrawn before it is used: that is kept for 30 days, and for ever once the worker signs in.

    A worker that used a consent stays known, so its withdrawal has no end. One that signed in without any, and did
    nothing, is forgotten after its session, as if it never came.

    It costs a stranger as much as a sign-in does (edge.rate_limit).
    """
    worker, payout = signing.checksum_address(address), withdrawal.payout
    with context.reading() as reader:
        _check_consent_usable(reader, worker, payout, withdrawal.nonce)
    signing.check_struct_signature(
        context.domain, Withdrawal(worker, payout, withdrawal.nonce), withdrawal.signature, payout
    )
    with context.begin() as work:
        _check_consent_usable(work, worker, payout, withdrawal.nonce)
        after = withdraw_consents(work, worker, payout, withdrawal.nonce, context.clock())
        return OperatorStatus(worker=worker, operator=after)


def _check_consent_usable(reader: RowReader, worker: Address, payout: Address, nonce: int) -> None:
    if not is_withdrawal_usable(reader, worker, payout, nonce):
        raise NotFound(f"{payout} withdrew its consents for {worker} up to this nonce already: name a greater one")


def is_withdrawal_usable(reader: RowReader, worker: Address, payout: Address, nonce: int) -> bool:
    """Whether a withdrawal with this nonce withdraws more than earlier ones did; its consent may not have come yet."""
    row = reader.get(ConsentRow, (worker, payout))
    return row is None or nonce > row.withdrawn


def withdraw_consents(work: Work, address: Address, payout: Address, nonce: int, now: float) -> Address:
    """Withdraws the payout key's consents up to `nonce`; a worker under that key becomes its own operator.

    Returns the worker's operator after it. Raises Conflict for a worker that never signed in once MOST_WITHDRAWN
    withdrawals of such workers are kept (leftovers).
    """
    work.one_at_a_time(f"worker {address}")
    row, known = work.get(ConsentRow, (address, payout)), work.get(Worker, address) is not None
    if row is None:
        if not known and leftover_rows.count_withdrawals(work, now) >= leftover_rows.MOST_WITHDRAWN:
            raise Conflict(
                f"{address} never signed in, and the service stores no more withdrawals of such workers now", LATER
            )
        work.add(ConsentRow(worker=address, payout=payout, withdrawn=nonce, at=now))
    else:
        row.withdrawn, row.at = max(row.withdrawn, nonce), now
    if not known:
        return address
    worker = lock_row(work, Worker, address)
    if worker.operator == payout:
        identities.set_operator(work, worker, False, now)
    return Address(worker.operator)


class ConsentsFeature(Feature):
    name = "consents"
    needs = ("leftovers",)
    routers = (router,)
