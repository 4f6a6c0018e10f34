"""The context of the chain work. No network call is made inside a writing transaction of the database."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol

from eth_keys.datatypes import PrivateKey

from contracts.calls import Call, OpenJob
from contracts.event_types import JobOpened
from contracts.ledger import Ledger
from contracts.processes import own_name
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, Units
from requester.store.tables import Job
from requester.store.work import RowReader, Work

Begin = Callable[[], AbstractContextManager[Work]]
Reading = Callable[[], AbstractContextManager[RowReader]]


class TransactionState(StrEnum):
    """LOST: another's transaction used its nonce, so it can never be mined."""

    PREPARED = "prepared"
    SENT = "sent"
    MINED = "mined"
    REVERTED = "reverted"
    LOST = "lost"


class TransactionKind(StrEnum):
    """The purpose of a transaction. After any outcome, the next action follows from the chain's state alone."""

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
    """Values in seconds, gradients and units. A batch is settled when the first of its three thresholds is reached."""

    settle_every_s: float = 5.0
    settle_gradients: int = 500
    settle_units: int | None = None
    confirmations: int = 1
    reserve_ahead: int = 20
    claim_window_s: int = 7 * 86_400
    lifetime_s: int = 30 * 86_400
    """Seconds for which a job without a deadline of its own may reserve and deposit."""
    resend_after_s: float = 15.0
    replace_after_s: float = 90.0
    max_fee: int | None = None
    """The highest price of gas, in wei; None: any price."""
    lost_after_s: float = 120.0
    """Seconds for which a used nonce without a receipt may be due to a lagging node; then the transaction is lost."""
    duty_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ToSign:
    """A transaction without value, to be sent from `owner`."""

    purpose: str
    owner: Address
    chain_id: int
    call: Call


@dataclass(frozen=True, slots=True)
class OwnerCall:
    """The job as opened on-chain, or a text that states the missing or wrong part."""

    job: JobOpened | None
    missing: str


class OwnerElsewhere(Protocol):
    """Prepares the calls that the owner of a service's money signs, where that key is kept elsewhere; each method
    raises ChainUnreachable.
    """

    def find_opening(self, chain: "ChainContext", job: Job) -> OwnerCall:
        """Looks on-chain for the job, opened by its owner."""

    def list_calls(self, chain: "ChainContext", job: Job, terms: OpenJob, added: Units) -> list[ToSign]:
        """Returns the calls that the owner must sign now, in this order, if the budget grows by `added` units."""


@dataclass(frozen=True)
class ChainContext:
    """`begin` opens a writing transaction, `reading` a read-only one. Only this service sends with `key`."""

    begin: Begin
    reading: Reading
    ledger: Ledger
    key: PrivateKey
    signer: Address
    """The address that signs vouchers; fixed on-chain in every job that is opened."""
    clock: Callable[[], float]
    policy: ChainPolicy = ChainPolicy()
    endpoint: str = ""
    """The URL at which workers reach the service; published in JobOpened."""
    owner: Address | None = None
    """Owns the jobs on-chain with a key kept elsewhere; where None, the sender owns them."""
    elsewhere: OwnerElsewhere | None = None
    """Prepares the calls that this owner signs, and finds those it has signed."""
    grant: Callable[[Amount], None] | None = None
    """On a local chain: ensures that the sender has gas money and at least this amount of tokens."""
    revive: Callable[[], bool] = bool
    """Restarts the service's own chain if it has ended; returns whether it did. False without such a chain."""
    steps: tuple[Callable[["ChainContext"], bool], ...] = ()
    """The features' chain work in every step; each returns whether it moved (requester.feature)."""
    extend_log: Callable[["ChainContext", str], LogHead | None] = lambda _chain, _job: None
    """Brings a job's log up to now and returns its head, which the next batch carries (requester.feature)."""
    holder: str = field(default_factory=own_name)
    """Identifies this process among those that share the database."""

    @cached_property
    def sender(self) -> Address:
        return address_of(self.key)

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract
