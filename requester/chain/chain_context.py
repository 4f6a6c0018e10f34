"""The context of the chain work. No network call is made inside a writing transaction of the database.

Beside it, queries about jobs with money on-chain, and events that are recorded once for each job.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Protocol

from eth_keys.datatypes import PrivateKey
from sqlalchemy import exists, func, or_, select

from contracts.calls import Call, OpenJob
from contracts.ledger import Ledger
from contracts.processes import own_name
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, BatchState, JobState, Units
from requester.store.review import review_of
from requester.store.tables import Account, Batch, Earned, Job, JobEvent, Transaction
from requester.store.work import RowReader, Work, record_event

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


class OwnerElsewhere(Protocol):
    """Prepares the calls that the owner of a service's money signs, where that key is kept elsewhere; each method
    raises ChainUnreachable.
    """

    def advance_opening(self, chain: "ChainContext", job: Job) -> bool:
        """Records that the job is open once its owner opened it, and else its reason; returns whether it is."""

    def list_calls(self, chain: "ChainContext", job: Job, terms: OpenJob, added: Units) -> list[ToSign]:
        """Returns the calls that the owner must sign now, in this order, if the budget grows by `added` units."""


@dataclass(frozen=True)
class Correction:
    """How a feature corrects rows by the chain, after a re-org or where a backup was restored; by default it does not.

    Each returns whether any row changed.
    """

    mark_forgotten_transactions: Callable[["ChainContext"], bool] = lambda _chain: False
    """Called in every step; has transactions sent again that the chain forgot."""
    correct_batches: Callable[["ChainContext", str], bool] = lambda _chain, _job: False
    """Called for a job after a disconnect, and where the contract expects another batch of it."""


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
    extend_opening: Callable[[OpenJob, Job, int], OpenJob] = lambda opening, _job, _window: opening
    """Adds the features' terms to those with which a job is opened (requester.feature)."""
    measure_stake: Callable[["ChainContext", Job, Address], Units] = lambda _chain, _job, _worker: Units(0)
    """Returns the units that a worker has at risk in a job (requester.feature)."""
    correction: Correction = field(default_factory=Correction)
    strangers: set[tuple[int, Address]] = field(default_factory=set)
    """Accounts that the contract's events name, by job and worker, of workers that have not signed in yet."""
    holder: str = field(default_factory=own_name)
    """Identifies this process among those that share the database."""

    @cached_property
    def sender(self) -> Address:
        return address_of(self.key)

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract


OPENING: Final = exists().where(
    Transaction.job_id == Job.id, Transaction.kind == TransactionKind.OPEN, Transaction.state.in_(UNDER_WAY)
)
"""True for a job whose opening is not mined yet, or no longer: the contract does not know the job."""

UNBATCHED: Final = (Earned.batch_id.is_(None), Earned.revoked.is_(False), Earned.waits.is_(False))
"""True for a gradient that a batch must still record; gradients revoked by an audit are in none."""


def list_running_chain_jobs(reader: RowReader) -> Sequence[Job]:
    """Returns the running jobs that reserve money on-chain."""
    return reader.session.scalars(_RUNNING).all()


def with_money(reader: RowReader) -> Sequence[Job]:
    """Returns jobs with work left: the contract holds their money, or a gradient is not settled."""
    return reader.session.scalars(_WITH_MONEY).all()


_RUNNING: Final = select(Job).where(Job.state == JobState.RUNNING, Job.chain_job.is_not(None), ~OPENING)
_WITHDRAWN: Final = (
    select(func.coalesce(func.sum(Account.withdrawn), 0)).where(Account.job_id == Job.id).scalar_subquery()
)
_UNFINISHED: Final = or_(
    Job.deposited - Job.refunded > _WITHDRAWN,
    exists().where(Earned.job_id == Job.id, *UNBATCHED),
    exists().where(Batch.job_id == Job.id, Batch.state != BatchState.SETTLED),
)
_WITH_MONEY: Final = select(Job).where(Job.chain_job.is_not(None), ~OPENING, _UNFINISHED).order_by(Job.created_at)


def opened_in(reader: RowReader, job_id: str) -> int | None:
    """Returns the block of the job's opening, or None where the database does not know it."""
    mined = (Transaction.kind == TransactionKind.OPEN, Transaction.state == TransactionState.MINED)
    return reader.session.scalar(select(func.min(Transaction.block)).where(Transaction.job_id == job_id, *mined))


def compute_kept_back(chain: ChainContext, job: Job) -> Units:
    """Returns the free money of the job that stays in the escrow, for pay that audits awarded or may award."""
    uncovered = select(func.coalesce(func.sum(Account.earned - Account.reserved), 0))
    with chain.reading() as reader:
        kept = review_of(reader).sum_awardable_units(reader, job.id)
        if not is_job_expired(job, chain.clock()):
            owed = uncovered.where(Account.job_id == job.id, Account.earned > Account.reserved)
            kept += int(reader.session.scalar(owed) or 0)
    return Units(kept)


def is_job_expired(job: Job, now: float) -> bool:
    """Whether the job has expired, so that nothing more can be reserved."""
    return job.expiry is not None and now > job.expiry


def record_once(chain: ChainContext, job_id: str, kind: str, **body: Any) -> None:
    """Records an event of this kind unless the job already has one."""
    with chain.reading() as reader:
        event_id = reader.session.scalar(
            select(JobEvent.id).where(JobEvent.job_id == job_id, JobEvent.kind == kind).limit(1)
        )
    if event_id is None:
        with chain.begin() as work:
            record_event(work, job_id, kind, chain.clock(), **body)
