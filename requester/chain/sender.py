"""Sends transactions of one sender: nonces come from the database, and a transaction is stored before it is sent.

    quote   asks the node for the call's cost, and whether the contract would refuse it      no row yet
    post    stores the row: nonce, signed bytes                                              in the caller's transaction
    push    sends rows to the node, again when they stay unmined, with higher fees when they are stuck
    follow  asks the node for their outcomes

After a crash between any two of these, the next `push` and `follow` continue from the rows. An unknown outcome changes
nothing: the row stays, its bytes are sent again, and they can be mined only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eth_utils.crypto import keccak
from hexbytes import HexBytes
from sqlalchemy import bindparam, delete, func, select

from contracts.calls import Call
from contracts.gas_price import GasPrice, compute_raised_fees
from contracts.transaction_types import Fees, Outcome, Unknown
from contracts.transactions import (
    estimate_gas_limit,
    fetch_fees,
    fetch_outcome,
    gas_price,
    offer_in,
    send_transaction,
    sign_call,
)
from gradmarket.market.terms import Address
from gradmarket.network.chain_errors import GasTooDear, NodeRefused
from requester.chain import mirror, outcomes
from requester.chain.chain_context import UNDER_WAY, ChainContext, TransactionKind, TransactionState
from requester.store.tables import Transaction
from requester.store.work import RowReader, Work

FILL_GAS = 21_000


@dataclass(frozen=True, slots=True)
class Quote:
    """The node's answers needed before a transaction is stored; `nonce` is the lowest free one."""

    call: Call
    gas: int
    price: Fees
    nonce: int


def quote_call(chain: ChainContext, call: Call) -> Quote:
    """Returns gas, fees and nonce for the call.

    Raises ContractRefused where the contract would refuse it now, GasTooDear where gas costs more than the owner pays.
    """
    web3 = chain.ledger.web3
    gas = estimate_gas_limit(web3, chain.sender, call)
    return Quote(call, gas, fetch_fees(web3, chain.policy.max_fee), chain.ledger.nonce(chain.sender))


def store_transaction(
    chain: ChainContext, work: Work, quoted: Quote, kind: TransactionKind, job_id: str | None
) -> Transaction:
    """Stores the transaction, signed, under the next nonce."""
    last = work.session.scalar(select(func.max(Transaction.nonce)).where(Transaction.sender == chain.sender))
    nonce = max(quoted.nonce, -1 if last is None else last + 1)
    return _store_signed_transaction(chain, work, quoted, kind, job_id, nonce)


def post_once(chain: ChainContext, quoted: Quote, kind: TransactionKind, job_id: str | None) -> bool:
    """Posts in a database transaction of its own, unless one of this kind is pending; returns whether it posted."""
    with chain.begin() as work:
        if under_way(work, kind, job_id):
            return False
        store_transaction(chain, work, quoted, kind, job_id)
    return True


def under_way(reader: RowReader, kind: TransactionKind, job_id: str | None = None) -> bool:
    """Whether a transaction of this kind, for the job or for any, is stored and has no known outcome yet."""
    if job_id is None:
        return reader.session.scalar(_OF_KIND, {"kind": kind}) is not None
    return reader.session.scalar(_OF_KIND_AND_JOB, {"kind": kind, "job": job_id}) is not None


_OF_KIND: Final = (
    select(Transaction.id).where(Transaction.kind == bindparam("kind"), Transaction.state.in_(UNDER_WAY)).limit(1)
)
_OF_KIND_AND_JOB: Final = _OF_KIND.where(Transaction.job_id == bindparam("job"))


def replace_by_empty_payment(chain: ChainContext, row_id: int) -> None:
    """Turns a transaction that was not sent yet into an empty payment to itself: its nonce has to be used."""
    filled = Call(chain.sender, b"")
    price = fetch_fees(chain.ledger.web3, chain.policy.max_fee)
    with chain.begin() as work:
        row = work.get_one(Transaction, row_id)
        if row.state != TransactionState.PREPARED:
            return
        signed = sign_call(chain.key, chain.ledger.deployment.chain_id, row.nonce, filled, FILL_GAS, price)
        row.kind, row.to, row.data = TransactionKind.FILL, filled.to or "", filled.data
        row.raw, row.hash, row.offer = signed.raw, signed.hash, _encode_gas_offer(FILL_GAS, price)


def find_refusal(chain: ChainContext) -> str:
    """Returns why the node refuses a pending transaction; empty where it refuses none."""
    return next((row.error for row in _open_rows(chain) if row.error), "")


def send_pending_transactions(chain: ChainContext) -> bool:
    """Sends transactions that are unsent, or were sent long ago and are not mined; returns whether any was sent."""
    now = chain.clock()
    consumed = chain.ledger.nonce(chain.sender)
    waiting = [row for row in _open_rows(chain) if row.nonce >= consumed]
    if waiting and waiting[0].nonce > consumed:
        # an empty payment to itself under a nonce that no pending row has: without it no later one is mined
        fees = fetch_fees(chain.ledger.web3, chain.policy.max_fee)
        same = (Transaction.sender == chain.sender, Transaction.nonce == consumed)
        quoted = Quote(Call(chain.sender, b""), FILL_GAS, fees, consumed)
        with chain.begin() as work:
            work.session.execute(delete(Transaction).where(*same, Transaction.state == TransactionState.LOST))
            if work.session.scalar(select(Transaction.id).where(*same)) is not None:
                return False  # a node that lags behind the outcome of that nonce
            filling = _store_signed_transaction(chain, work, quoted, TransactionKind.FILL, None, consumed)
        waiting.insert(0, filling)
    due = [
        row
        for row in waiting
        if row.state == TransactionState.PREPARED
        or row.sent_at is None
        or now - row.sent_at >= chain.policy.resend_after_s
    ]
    price = gas_price(chain.ledger.web3) if any(row.sent_at is not None for row in due) else None
    for row in due:
        # commits new bytes before it sends them, and records afterwards that they were sent
        raw, waits = row.raw or b"", ""
        if row.sent_at is not None and price is not None:
            try:
                raw = _store_replacement(chain, row, now, price) or raw
            except GasTooDear as error:
                waits = error.detail
        refusal = ""
        try:
            send_transaction(chain.ledger.web3, raw)
        except NodeRefused as error:
            refusal = str(error)
        with chain.begin() as work:
            outcomes.record_sending(work, row.id, now, waits or refusal)
    return bool(due)


def record_known_outcomes(chain: ChainContext, looked: int = 0) -> set[str]:
    """Records every outcome that is known by now; returns the jobs that were touched ("" for none in particular).

    Copies a job's figures first: where that fails the outcome stays unknown, so that nothing is paid in again by
    figures from before it, or before block `looked`. Those of an opening are copied once the job has its number.
    """
    found = _find_known_outcomes(chain)
    at = max([looked, *(result.receipt.block for _, result, _ in found if not isinstance(result, Unknown))])
    opened = [row.job_id for row, _, _ in found if row.kind == TransactionKind.OPEN and row.job_id is not None]
    for job_id in {row.job_id for row, _, _ in found if row.job_id is not None}.difference(opened):
        mirror.copy_job_from_chain(chain, job_id, at)
    for row, result, hash_ in found:
        with chain.begin() as work:
            outcomes.record_outcome(work, chain.ledger, row.id, result, hash_, chain.clock())
    for job_id in opened:
        mirror.copy_job_from_chain(chain, job_id, at)
    return {row.job_id or "" for row, _, _ in found}


def _find_known_outcomes(chain: ChainContext) -> list[tuple[Transaction, Outcome, str]]:
    """Returns the pending rows whose outcomes are known by now, with these and the hashes of their attempts."""
    consumed = chain.ledger.nonce(chain.sender)
    found = list[tuple[Transaction, Outcome, str]]()
    for row in _open_rows(chain):
        if row.nonce >= consumed:
            continue
        tried = _list_attempt_hashes(chain, row)
        for hash_ in tried:
            result = fetch_outcome(chain.ledger.web3, hash_, chain.policy.confirmations)
            if not isinstance(result, Unknown):
                break
        else:
            result, hash_ = Unknown(tried[0]), tried[0]
            # given up once the node has no receipt, not even an unconfirmed one, long after the transaction was created
            unconfirmed = (fetch_outcome(chain.ledger.web3, one) for one in tried)
            known = any(not isinstance(outcome, Unknown) for outcome in unconfirmed)
            if known or chain.clock() - row.created_at < chain.policy.lost_after_s:
                continue
        found.append((row, result, hash_))
    return found


def _store_signed_transaction(
    chain: ChainContext, work: Work, quoted: Quote, kind: TransactionKind, job_id: str | None, nonce: int
) -> Transaction:
    chain_id = chain.ledger.deployment.chain_id
    signed = sign_call(chain.key, chain_id, nonce, quoted.call, quoted.gas, quoted.price)
    row = Transaction(
        sender=chain.sender,
        nonce=nonce,
        kind=kind,
        job_id=job_id,
        to=quoted.call.to or "",
        data=quoted.call.data,
        state=TransactionState.PREPARED,
        raw=signed.raw,
        hash=signed.hash,
        offer=_encode_gas_offer(quoted.gas, quoted.price),
        error="",
        created_at=chain.clock(),
    )
    work.add(row)
    work.flush()
    return row


def _open_rows(chain: ChainContext) -> Sequence[Transaction]:
    with chain.reading() as reader:
        return reader.session.scalars(_OPEN_ROWS, {"sender": chain.sender}).all()


_OPEN_ROWS: Final = (
    select(Transaction)
    .where(Transaction.sender == bindparam("sender"), Transaction.state.in_(UNDER_WAY))
    .order_by(Transaction.nonce)
)


def _store_replacement(chain: ChainContext, row: Transaction, now: float, price: GasPrice) -> bytes | None:
    """Returns the bytes of a replacement, stored; None where the transaction needs none.

    It needs one where it cannot be mined at the chain's price now, and where it waited long in spite of its fees. The
    nonce stays, so that one of them is mined at most.
    """
    offer, tried = row.offer, _list_attempt_hashes(chain, row)
    gas, old = (
        (int(offer["gas"]), Fees(int(offer["most"]), int(offer["tip"]), bool(offer["legacy"])))
        if offer
        else offer_in(row.raw or b"")
    )
    overdue = now - row.created_at >= chain.policy.replace_after_s * 2 ** (len(tried) - 1)
    new = compute_raised_fees(old, price, overdue, chain.policy.max_fee)
    if new is None:
        return None
    call = Call(Address(row.to) if row.to else None, row.data)
    signed = sign_call(chain.key, chain.ledger.deployment.chain_id, row.nonce, call, gas, new)
    with chain.begin() as work:
        outcomes.store_replacement(work, row.id, signed, _encode_gas_offer(gas, new), tried[::-1])
    return signed.raw


def _encode_gas_offer(gas: int, price: Fees) -> dict[str, Any]:
    """Encodes wei as texts: JSON's numbers end at 2^53 in some databases and readers."""
    return {"gas": gas, "most": str(price.most), "tip": str(price.tip), "legacy": price.legacy}


def _list_attempt_hashes(chain: ChainContext, row: Transaction) -> list[str]:
    """Returns the hashes of all attempts at the row's nonce, the newest first: `hash` becomes that of the mined one.

    Releases before `offer` stored only the newest attempt: each doubled both fees of the last, the first tip was odd.
    """
    if row.raw is None:
        return [row.hash or ""]
    tried = [HexBytes(keccak(row.raw)).to_0x_hex(), *reversed(row.replaced)]
    if row.offer:
        return tried
    gas, price = offer_in(row.raw)
    call = Call(Address(row.to) if row.to else None, row.data)
    while price.tip and price.tip % 2 == 0:
        price = Fees(price.most // 2, price.tip // 2)
        tried.append(sign_call(chain.key, chain.ledger.deployment.chain_id, row.nonce, call, gas, price).hash)
    return tried
