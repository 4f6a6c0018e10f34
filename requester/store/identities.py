"""Callers of the service: bearer tokens by their hash, used sign-in nonces, and workers as they signed in.

A worker's operator follows from payout keys' consents and their withdrawals (market.rules.assignment).

API tokens: each has a name, a role and an end, and is stored as a hash. A token without a row has ended.
"""

import secrets
from collections.abc import Sequence
from typing import Final

from blake3 import blake3
from sqlalchemy import Select, delete, exists, select

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.rules import assignment as rule
from gradmarket.market.terms import Address, ReplicaState, Role
from requester.store.tables import ApiToken, ConsentRow, Nonce, Replica, Worker
from requester.store.work import RowReader, Work

PAID: Final = (ReplicaState.PAYABLE, ReplicaState.DIVERGED)


def hash_of(token: str) -> bytes:
    return blake3(token.encode()).digest()


def issue_token(work: Work, role: str, subject: str, until: float | None, now: float) -> str:
    token = secrets.token_urlsafe(32)
    store_token(work, token, role, subject, until, now)
    return token


def store_token(work: Work, token: str, role: str, subject: str, until: float | None, now: float) -> None:
    known = work.get(ApiToken, hash_of(token))
    since = known.created_at if known is not None else now
    work.session.merge(ApiToken(hash=hash_of(token), role=role, subject=subject, until=until, created_at=since))
    work.flush()


def find_token(reader: RowReader, token: str, now: float) -> ApiToken | None:
    """Returns the token's row, or None where it is unknown or has expired."""
    row = reader.get(ApiToken, hash_of(token))
    return row if row is not None and (row.until is None or row.until > now) else None


def was_paid(reader: RowReader, worker: Address) -> bool:
    """Whether an answer of the worker was ever accepted."""
    accepted = exists().where(Replica.worker == worker, Replica.state.in_(PAID))
    return bool(reader.session.scalar(select(accepted)))


def use_nonce(work: Work, value: str, until: float, now: float) -> bool:
    """Marks the nonce as used; returns whether it was unused. The caller must hold its name (one_at_a_time)."""
    work.session.execute(delete(Nonce).where(Nonce.until < now))
    if work.get(Nonce, value) is not None:
        return False
    work.add(Nonce(value=value, until=until))
    return True


def sign_in(
    work: Work, address: Address, payout: Address, network: str | None, now: float, consent: int | None = None
) -> Worker:
    """Returns the worker's row, updated with the fields it signed now; creates a missing row.

    `consent` is the nonce of its payout key's consent, which was checked. Raises SignatureRefused where that consent
    was withdrawn.
    """
    worker = work.session.get(Worker, address, with_for_update={"key_share": True}, populate_existing=True)
    if worker is None:
        worker = Worker(address=address, joined_at=now, determinism_class="", capacity=0, asking_until=0.0)
        worker.operator = address
        worker.fence, worker.jobs, worker.least_price = 0, [], 0
        worker.least_prices = {}
        work.add(worker)
    worker.payout, worker.network, worker.seen_at = payout, network, now
    work.flush()
    if consent is not None:
        row = work.get(ConsentRow, (worker.address, worker.payout))
        if row is None:
            work.add(ConsentRow(worker=worker.address, payout=worker.payout, withdrawn=0, at=worker.seen_at))
        elif consent <= row.withdrawn:
            remedy = f"sign in without one, or with one whose nonce is over {row.withdrawn}"
            raise SignatureRefused(f"{worker.payout} withdrew this consent: {remedy}")
    set_operator(work, worker, consent is not None, now)
    return worker


def set_operator(work: Work, worker: Worker, consented: bool, now: float) -> None:
    """Sets the worker's operator; notifies the features first where the worker leaves another operator."""
    operator = rule.operator_of(worker.address, worker.payout, consented)
    if worker.operator not in (operator, worker.address):
        for feature in work.session.info["features"]:
            feature.operator_left(work, worker.address, worker.operator, now)
    worker.operator = operator


OWN: Final = "requester"
"""The name of the service's own token, which comes from the settings or from the data folder."""


AUDITOR: Final = "own-auditor"
"""The name of the token of the auditor that the service runs itself."""


def operator_of(subject: str) -> str:
    """Returns the operator that a token of this name stands for; the service's own auditor is the requester's."""
    return OWN if subject == AUDITOR else subject


def select_tokens() -> Select[ApiToken]:
    return select(ApiToken).where(ApiToken.role.in_(Role))


def store_own_token(work: Work, secret: str, now: float, role: Role = Role.ADMIN, name: str = OWN) -> None:
    """Makes this secret the service's own token of that name, and ends the previous one."""
    mine = hash_of(secret)
    before: Sequence[ApiToken] = work.session.scalars(select_tokens().where(ApiToken.subject == name)).all()
    for row in before:
        if row.hash != mine:
            work.session.delete(row)
    store_token(work, secret, role, name, None, now)
