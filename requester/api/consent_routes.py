"""The route to withdraw a consent by the payout key's signature; anyone who is signed in may send it.

A consent itself comes only with its worker's sign-in, so that nobody becomes an operator whom the worker did not name.
"""

from typing import Annotated

from fastapi import APIRouter, Path

from gradmarket.market import signing
from gradmarket.market.errors import NotFound
from gradmarket.market.messages import Withdrawal
from gradmarket.market.terms import Address
from gradmarket.market.wire.sign_in import OperatorStatus, WithdrawalRequest
from requester.api.auth_routes import ANYONE, Anyone
from requester.api.problems import describe_problems
from requester.api.state import Here
from requester.store import operators
from requester.store.retries import retry_on_conflict
from requester.store.work import RowReader

router = APIRouter(prefix="/v1", tags=["workers"])

WorkerPath = Annotated[str, Path(pattern=r"^0x[0-9a-fA-F]{40}$")]


@router.post(
    "/workers/{address}/withdrawal",
    operation_id="withdraw_consent",
    responses={**ANYONE, **describe_problems(404, 409)},
    summary="A payout key takes its consents for a worker back",
)
@retry_on_conflict
def withdraw(context: Here, _identity: Anyone, address: WorkerPath, said: WithdrawalRequest) -> OperatorStatus:
    """A consent may be withdrawn before it is used: that is kept for 30 days, and for ever once the worker signs in.

    A worker that used a consent stays known, so its withdrawal has no end. One that signed in without any, and did
    nothing, is forgotten after its session, as if it never came.

    It costs a stranger as much as a sign-in does (edge.rate_limit).
    """
    worker, payout = signing.checksum_address(address), said.payout
    with context.reading() as reader:
        _check_consent_usable(reader, worker, payout, said.nonce)
    signing.check_struct_signature(context.domain, Withdrawal(worker, payout, said.nonce), said.signature, payout)
    with context.begin() as work:
        _check_consent_usable(work, worker, payout, said.nonce)
        after = operators.withdraw_consents(work, worker, payout, said.nonce, context.clock())
        return OperatorStatus(worker=worker, operator=after)


def _check_consent_usable(reader: RowReader, worker: Address, payout: Address, nonce: int) -> None:
    if not operators.is_withdrawal_usable(reader, worker, payout, nonce):
        raise NotFound(f"{payout} took back its consents for {worker} up to this nonce already: name a greater one")
