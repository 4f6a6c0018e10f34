"""Who may knock: bearer tokens by their hash, used sign-in nonces, and workers as they signed in."""

import secrets
from typing import Final

from blake3 import blake3
from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from gradmarket.market.terms import Address, ReplicaState
from gradmarket.requester.store.tables import Nonce, Replica, Token, Worker

PAID: Final = (ReplicaState.PAYABLE, ReplicaState.DIVERGED)


def hash_of(token: str) -> bytes:
    return blake3(token.encode()).digest()


def issue(session: Session, role: str, subject: str, until: float | None) -> str:
    token = secrets.token_urlsafe(32)
    remember(session, token, role, subject, until)
    return token


def remember(session: Session, token: str, role: str, subject: str, until: float | None) -> None:
    session.merge(Token(hash=hash_of(token), role=role, subject=subject, until=until))


def find(session: Session, token: str, now: float) -> Token | None:
    """The identity behind a token that has not run out."""
    found = session.get(Token, hash_of(token))
    return found if found is not None and (found.until is None or found.until > now) else None


def was_paid(session: Session, worker: Address) -> bool:
    """Whether an answer of it was ever accepted."""
    accepted = exists().where(Replica.worker == worker, Replica.state.in_(PAID))
    return bool(session.scalar(select(accepted)))


def use_nonce(session: Session, value: str, until: float, now: float) -> bool:
    """Whether it was not used before; it is used now. For the transaction that has its name alone."""
    session.execute(delete(Nonce).where(Nonce.until < now))
    if session.get(Nonce, value) is not None:
        return False
    session.add(Nonce(value=value, until=until))
    return True


def sign_in(session: Session, address: Address, payout: Address, network: str | None, now: float) -> Worker:
    """The worker's row with what it signed now; its operator is the payout address that it answers to."""
    worker = session.get(Worker, address)
    if worker is None:
        worker = Worker(address=address, joined_at=now, determinism_class="", capacity=0, asking_until=0.0)
        worker.fence, worker.jobs, worker.least_price = 0, [], 0
        worker.least_prices = {}
        session.add(worker)
    worker.payout, worker.operator, worker.network, worker.seen_at = payout, payout, network, now
    return worker
