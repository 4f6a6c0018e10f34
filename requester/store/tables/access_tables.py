"""Tables of access: used nonces, consents, tokens, answered requests, troubles and leases."""

from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from requester.store.tables.base import Base


class Nonce(Base):
    """A used sign-in nonce (EIP-4361), kept until it could not be used any more."""

    __tablename__ = "nonces"

    value: Mapped[str] = mapped_column(primary_key=True)
    until: Mapped[float]


class ConsentRow(Base):
    """A payout key's consents to be a worker's operator, as the worker presented or the key withdrew them.

    The worker may not have come yet (messages.SignedConsent, messages.Withdrawal).
    """

    __tablename__ = "consents"

    worker: Mapped[str] = mapped_column(primary_key=True)
    payout: Mapped[str] = mapped_column(primary_key=True)
    withdrawn: Mapped[int] = mapped_column(default=0)
    """Consents with a nonce up to this one are withdrawn; 0: none."""
    at: Mapped[float] = mapped_column(default=0.0, server_default="0")
    """The time of the last write (features.leftovers)."""

    __table_args__ = (Index("consents_by_age", "at"),)


class ApiToken(Base):
    """A bearer token by its hash: a worker's session (subject: its address) or an API token (subject: its name)."""

    __tablename__ = "tokens"

    hash: Mapped[bytes] = mapped_column(primary_key=True)
    role: Mapped[str]
    subject: Mapped[str]
    until: Mapped[float | None]
    created_at: Mapped[float] = mapped_column(default=0.0, server_default="0")

    __table_args__ = (Index("tokens_by_subject", "subject"), Index("tokens_by_end", "until"))


class Idempotency(Base):
    """The response to a request with an Idempotency-Key, so that a repeated request gets the same one."""

    __tablename__ = "idempotency"

    subject: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[bytes]
    status: Mapped[int]
    body: Mapped[dict[str, Any]]
    location: Mapped[str | None]
    at: Mapped[float]


class Trouble(Base):
    """The reason why a part of the service does not work, written by the process that runs the part and read by all."""

    __tablename__ = "troubles"

    part: Mapped[str] = mapped_column(primary_key=True)
    said: Mapped[str]
    """Empty while the part works."""


class LeaderLease(Base):
    """A lease on work that one process at a time may do, such as sending transactions."""

    __tablename__ = "duties"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until: Mapped[float]
