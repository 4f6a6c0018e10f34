"""Who a worker's operator is: payout keys' consents, and their withdrawals. The rule is market.rules.operators."""

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.rules import operators as rule
from requester.store import reputations
from requester.store.tables import ConsentRow, Worker
from requester.store.work import Work


def record_consent_use(work: Work, worker: Worker, nonce: int) -> None:
    """Records that the worker uses a consent of its payout key. Raises SignatureRefused where it was withdrawn."""
    row = work.get(ConsentRow, (worker.address, worker.payout))
    if row is None:
        work.add(ConsentRow(worker=worker.address, payout=worker.payout, withdrawn=0, at=worker.seen_at))
    elif nonce <= row.withdrawn:
        remedy = f"sign in without one, or with one whose nonce is over {row.withdrawn}"
        raise SignatureRefused(f"{worker.payout} took this consent back: {remedy}")


def set_operator(work: Work, worker: Worker, consented: bool, now: float) -> None:
    """Sets the worker's operator; a worker that leaves an operator keeps that operator's bar."""
    operator = rule.operator_of(worker.address, worker.payout, consented)
    if worker.operator not in (operator, worker.address):
        reputations.copy_bar_to_wallet(work, worker.address, worker.operator, now)
    worker.operator = operator
