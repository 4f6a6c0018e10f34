"""One sender: nonces come from the database, and a signed transaction is in its row before any node sees it.

    quote   asks the node what it costs, and whether the contract would refuse      no row yet
    post    writes the row: nonce, signed bytes                                     in the caller's transaction
    push    hands rows to the node, again when they stay unmined, with higher fees when they stick
    follow  asks what became of them

A crash between any two leaves rows from which the next `push` and `follow` go on. An outcome that is unknown changes
nothing: the row stays, its bytes are sent again, and they can be mined once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from gradmarket.contracts.calls import Call
from gradmarket.contracts.errors import NodeRefused
from gradmarket.contracts.transactions import (
    Fees,
    Outcome,
    Signed,
    Unknown,
    attempts,
    estimate,
    fees,
    outcome,
    replacement,
    send,
    sign,
)
from gradmarket.requester.chain import books
from gradmarket.requester.chain.desk import UNDER_WAY, Desk, Kind, TransactionState
from gradmarket.requester.store.tables import Transaction

FILL_GAS = 21_000


@dataclass(frozen=True, slots=True)
class Quote:
    """What must be asked of the node before a transaction is written down; `nonce` is the least that is free."""

    call: Call
    gas: int
    price: Fees
    nonce: int


def quote(desk: Desk, call: Call) -> Quote:
    """Raises ContractRefused where the contract would refuse it now."""
    web3 = desk.ledger.web3
    gas = estimate(web3, desk.sender, call)
    return Quote(call, gas, fees(web3), desk.ledger.nonce(desk.sender))


def post(desk: Desk, session: Session, quoted: Quote, kind: Kind, job_id: str | None) -> Transaction:
    """Writes the transaction down, signed, under the next nonce."""
    last = session.scalar(select(func.max(Transaction.nonce)).where(Transaction.sender == desk.sender))
    nonce = max(quoted.nonce, -1 if last is None else last + 1)
    return _write(desk, session, quoted, kind, job_id, nonce)


def post_once(desk: Desk, quoted: Quote, kind: Kind, job_id: str | None) -> bool:
    """The same in a transaction of its own, unless one of this kind is under way."""
    with desk.begin() as session:
        if under_way(session, kind, job_id):
            return False
        post(desk, session, quoted, kind, job_id)
    return True


def under_way(session: Session, kind: Kind, job_id: str | None = None) -> bool:
    """Whether such a transaction, for the job or for any, is written down and its outcome not known yet."""
    same = select(Transaction.id).where(Transaction.kind == kind, Transaction.state.in_(UNDER_WAY))
    if job_id is not None:
        same = same.where(Transaction.job_id == job_id)
    return session.scalar(same.limit(1)) is not None


def refused(desk: Desk) -> str:
    """Why the node does not take what is under way; empty where it does."""
    return next((row.error for row in _open_rows(desk) if row.error), "")


def push(desk: Desk) -> bool:
    """Sends what was not sent, or was sent long ago and is not mined; whether anything was."""
    now = desk.clock()
    consumed = desk.ledger.nonce(desk.sender)
    waiting = [row for row in _open_rows(desk) if row.nonce >= consumed]
    if waiting and waiting[0].nonce > consumed:
        waiting.insert(0, _fill(desk, consumed))
    due = [row for row in waiting if _due(desk, row, now)]
    for row in due:
        _send(desk, row, now)
    return bool(due)


def follow(desk: Desk) -> set[str]:
    """Books every outcome that is known by now; the jobs that it touched ("" for none in particular)."""
    consumed = desk.ledger.nonce(desk.sender)
    finished = [row for row in _open_rows(desk) if row.nonce < consumed and _finish(desk, row)]
    return {row.job_id or "" for row in finished}


def _write(desk: Desk, session: Session, quoted: Quote, kind: Kind, job_id: str | None, nonce: int) -> Transaction:
    chain = desk.ledger.deployment.chain_id
    signed = sign(desk.key, chain, nonce, quoted.call, quoted.gas, quoted.price)
    row = Transaction(
        sender=desk.sender,
        nonce=nonce,
        kind=kind,
        job_id=job_id,
        to=quoted.call.to or "",
        data=quoted.call.data,
        state=TransactionState.PREPARED,
        raw=signed.raw,
        hash=signed.hash,
        error="",
        created_at=desk.clock(),
    )
    session.add(row)
    session.flush()
    return row


def _open_rows(desk: Desk) -> Sequence[Transaction]:
    mine = (Transaction.sender == desk.sender, Transaction.state.in_(UNDER_WAY))
    with desk.reading() as session:
        return session.scalars(select(Transaction).where(*mine).order_by(Transaction.nonce)).all()


def _fill(desk: Desk, nonce: int) -> Transaction:
    """A payment of nothing to ourselves under a nonce that no row waits for: without it no later one is ever mined."""
    quoted = Quote(Call(desk.sender, b""), FILL_GAS, fees(desk.ledger.web3), nonce)
    with desk.begin() as session:
        same = (Transaction.sender == desk.sender, Transaction.nonce == nonce)
        session.execute(delete(Transaction).where(*same, Transaction.state == TransactionState.LOST))
        return _write(desk, session, quoted, Kind.FILL, None, nonce)


def _due(desk: Desk, row: Transaction, now: float) -> bool:
    if row.state == TransactionState.PREPARED or row.sent_at is None:
        return True
    return now - row.sent_at >= desk.policy.resend_after_s


def _send(desk: Desk, row: Transaction, now: float) -> None:
    """Commits the bytes, if they are new, before it sends them; and that they were sent, after."""
    stuck = now - row.created_at >= desk.policy.replace_after_s * 2 ** _replaced(desk, row)
    signed = replacement(desk.key, _raw(row)) if stuck and row.sent_at is not None else None
    if signed is not None:
        with desk.begin() as session:
            books.rewrite(session, row.id, signed.raw, signed.hash)
    error = _try_to_send(desk, signed.raw if signed else _raw(row))
    with desk.begin() as session:
        books.sent(session, row.id, now, error)


def _replaced(desk: Desk, row: Transaction) -> int:
    return sum(1 for _ in attempts(desk.key, _raw(row))) - 1


def _try_to_send(desk: Desk, raw: bytes) -> str:
    try:
        send(desk.ledger.web3, raw)
    except NodeRefused as error:
        return str(error)
    return ""


def _finish(desk: Desk, row: Transaction) -> bool:
    """Books the outcome of a row whose nonce is used; False while that is not known or not deep enough."""
    found, signed = _outcome(desk, row)
    if isinstance(found, Unknown) and not _given_up(desk, row):
        return False
    with desk.begin() as session:
        books.finished(session, desk.ledger, row.id, found, signed.hash, desk.clock())
    return True


def _outcome(desk: Desk, row: Transaction) -> tuple[Outcome, Signed]:
    """Of whichever attempt at this nonce has one."""
    tried = list(attempts(desk.key, _raw(row)))
    for signed in tried:
        found = outcome(desk.ledger.web3, signed.hash, desk.policy.confirmations)
        if not isinstance(found, Unknown):
            return found, signed
    return found, tried[0]


def _given_up(desk: Desk, row: Transaction) -> bool:
    """No receipt at all, not even a shallow one, long after the nonce was used."""
    known = any(
        not isinstance(outcome(desk.ledger.web3, signed.hash), Unknown) for signed in attempts(desk.key, _raw(row))
    )
    return not known and desk.clock() - row.created_at >= desk.policy.lost_after_s


def _raw(row: Transaction) -> bytes:
    return row.raw or b""
