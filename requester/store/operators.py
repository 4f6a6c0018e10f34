"""Who a worker's operator is: payout keys' consents, and their withdrawals. The rule is market.rules.operators."""

from typing import Final

from gradmarket.market.errors import Conflict, SignatureRefused
from gradmarket.market.rules import operators as rule
from gradmarket.market.terms import Address
from requester.store import leftovers, reputations
from requester.store.locks import lock_row
from requester.store.tables import ConsentRow, Worker
from requester.store.work import RowReader, Work

LATER: Final = "send it again once the worker has signed in, or tomorrow"


def record_consent_use(work: Work, worker: Worker, nonce: int) -> None:
    """Records that the worker uses a consent of its payout key. Raises SignatureRefused where it was withdrawn."""
    row = work.get(ConsentRow, (worker.address, worker.payout))
    if row is None:
        work.add(ConsentRow(worker=worker.address, payout=worker.payout, withdrawn=0, at=worker.seen_at))
    elif nonce <= row.withdrawn:
        remedy = f"sign in without one, or with one whose nonce is over {row.withdrawn}"
        raise SignatureRefused(f"{worker.payout} took this consent back: {remedy}")


def is_withdrawal_usable(reader: RowReader, worker: Address, payout: Address, nonce: int) -> bool:
    """Whether a withdrawal with this nonce withdraws more than earlier ones did; its consent may not have come yet."""
    row = reader.get(ConsentRow, (worker, payout))
    return row is None or nonce > row.withdrawn


def withdraw_consents(work: Work, address: Address, payout: Address, nonce: int, now: float) -> Address:
    """Withdraws the payout key's consents up to `nonce`; a worker under that key becomes its own operator.

    Returns the worker's operator after it. Raises Conflict for a worker that never signed in where as many are kept of
    such workers as there may be (leftovers).
    """
    work.one_at_a_time(f"worker {address}")
    row, known = work.get(ConsentRow, (address, payout)), work.get(Worker, address) is not None
    if row is None:
        if not known and leftovers.count_withdrawals(work, now) >= leftovers.MOST_WITHDRAWN:
            raise Conflict(f"{address} never signed in, and no more is written down of such workers now", LATER)
        work.add(ConsentRow(worker=address, payout=payout, withdrawn=nonce, at=now))
    else:
        row.withdrawn, row.at = max(row.withdrawn, nonce), now
    if not known:
        return address
    worker = lock_row(work, Worker, address)
    if worker.operator == payout:
        set_operator(work, worker, False, now)
    return Address(worker.operator)


def set_operator(work: Work, worker: Worker, consented: bool, now: float) -> None:
    """Sets the worker's operator; a worker that leaves an operator keeps that operator's bar."""
    operator = rule.operator_of(worker.address, worker.payout, consented)
    if worker.operator not in (operator, worker.address):
        reputations.copy_bar_to_wallet(work, worker.address, worker.operator, now)
    worker.operator = operator
