"""Who may knock and what it was answered; who has a duty."""

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.requester.store.tables.base import Base


class Nonce(Base):
    """A sign-in nonce (EIP-4361) that was used, until nobody could use it any more."""

    __tablename__ = "nonces"

    value: Mapped[str] = mapped_column(primary_key=True)
    until: Mapped[float]


class ConsentRow(Base):
    """A payout key said, and a worker brought, that it is the worker's operator (messages.Consent)."""

    __tablename__ = "consents"

    worker: Mapped[str] = mapped_column(ForeignKey("workers.address"), primary_key=True)
    payout: Mapped[str] = mapped_column(primary_key=True)
    withdrawn: Mapped[int] = mapped_column(default=0)
    """Those with a nonce up to this one are taken back; 0: none."""


class ApiToken(Base):
    """A bearer token by its hash: a worker's session, whose subject is its address, or an API token, whose subject is
    its name."""

    __tablename__ = "tokens"

    hash: Mapped[bytes] = mapped_column(primary_key=True)
    role: Mapped[str]
    subject: Mapped[str]
    until: Mapped[float | None]
    created_at: Mapped[float] = mapped_column(default=0.0, server_default="0")

    __table_args__ = (Index("tokens_by_subject", "subject"), Index("tokens_by_end", "until"))


class Idempotency(Base):
    """What was answered to an Idempotency-Key, so that a repeated request is answered alike."""

    __tablename__ = "idempotency"

    subject: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[bytes]
    status: Mapped[int]
    body: Mapped[dict[str, Any]]
    location: Mapped[str | None]
    at: Mapped[float]


class Trouble(Base):
    """What a part of the service suffers from, written by the process that works with it and read by all."""

    __tablename__ = "troubles"

    part: Mapped[str] = mapped_column(primary_key=True)
    said: Mapped[str]
    """Empty while there is none."""


class LeaderLease(Base):
    """A lease on a duty that one process at a time may have, such as sending transactions."""

    __tablename__ = "duties"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until: Mapped[float]
