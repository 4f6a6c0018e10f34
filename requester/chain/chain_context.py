"""What the chain work works with. No network call is made inside a writing transaction of the database."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

from eth_keys.datatypes import PrivateKey
from sqlalchemy.orm import Session

from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.processes import own_name
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount

Begin = Callable[[], AbstractContextManager[Session]]


class TransactionState(StrEnum):
    """lost: its nonce was used by a transaction that is not ours, so it can never be mined."""

    PREPARED = "prepared"
    SENT = "sent"
    MINED = "mined"
    REVERTED = "reverted"
    LOST = "lost"


class TransactionKind(StrEnum):
    """What a transaction is for. Whatever becomes of one, what it is for is decided anew from the chain's state."""

    APPROVE = "approve"
    OPEN = "open"
    TOP_UP = "top_up"
    RESERVE = "reserve"
    SETTLE = "settle"
    WITHDRAW = "withdraw"
    REFUND = "refund"
    FILL = "fill"
    ACCUSE = "accuse"
    CLOSE = "close"
    UNSTAKE = "unstake"


UNDER_WAY: Final = (TransactionState.PREPARED, TransactionState.SENT)


@dataclass(frozen=True, slots=True)
class ChainPolicy:
    """Seconds, gradients and units; a batch is settled when the first of its three thresholds is reached."""

    settle_every_s: float = 5.0
    settle_gradients: int = 500
    settle_units: int | None = None
    confirmations: int = 1
    reserve_ahead: int = 20
    claim_window_s: int = 7 * 86_400
    lifetime_s: int = 30 * 86_400
    """How long a job without an end of its own may reserve and deposit."""
    resend_after_s: float = 15.0
    replace_after_s: float = 90.0
    lost_after_s: float = 120.0
    """How long a used nonce without any receipt of ours may be a node that lags."""
    duty_s: float = 30.0


@dataclass(frozen=True)
class ChainContext:
    """`begin` and `reading` open a writing and a reading transaction; `key` is nobody else's to send with."""

    begin: Begin
    reading: Begin
    ledger: Ledger
    key: PrivateKey
    signer: Address
    """Signs vouchers: fixed in every job that is opened."""
    clock: Callable[[], float]
    policy: ChainPolicy = ChainPolicy()
    endpoint: str = ""
    """Where workers find the service; told in JobOpened."""
    owner: Address | None = None
    """Owns the jobs with a key that is elsewhere; the sender does where none is named."""
    grant: Callable[[Amount], None] | None = None
    """On a local chain: sees to it that the sender has gas money and at least so many tokens."""
    revive: Callable[[], bool] = bool
    """Starts the service's own chain again where that has ended: whether it did. Nothing to start elsewhere."""
    holder: str = field(default_factory=own_name)
    """Names this process among those that share the database."""

    @cached_property
    def sender(self) -> Address:
        return address_of(self.key)

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract
