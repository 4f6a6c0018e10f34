"""Everything that the worker's parts share for one market: its identity, limits, clients, accounts and caches."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.compute.executor import Executor
from gradmarket.compute.machine import Effort
from gradmarket.compute.task_run import Windowed
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.money import TokenUnit
from gradmarket.market.release import PROTOCOL
from gradmarket.market.rules.pricing import PLAIN
from gradmarket.market.signing import Domain, Signer, signer_of
from gradmarket.market.terms import Address, Amount, JobId, JobState, ReplicaId, Units
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire import framing
from gradmarket.market.wire.poll import Lease, SketchRequest, StepFault, UnusedReservation, WaveOpened
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network import DownloadFailed, DownloadRefused
from graphdoc.encoding import Bytes
from worker.journal import Journal
from worker.money.account_store import AccountStore, JobAccount
from worker.money.chain_view import ChainView
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import InFlight, seed_of, sign_sketch
from worker.protocol.outgoing import ObjectStores, Payload
from worker.protocol.policy import (
    Guard,
    Proposal,
    RequesterStanding,
    WorkLimits,
    too_cheap,
    too_slow,
    why_not,
)
from worker.protocol.worth import compute_least_price
from worker.settings import WorkerSettings
from worker.signals import Signals
from worker.wallet import Wallet

FindPause = Callable[[bool, Callable[[float], object]], str]
"""(whether a step is computed, a function that waits the given seconds) -> why no task is taken now, empty where one
may be."""


def never_paused(_works: bool, _pause: Callable[[float], object]) -> str:
    return ""


def describe_nothing(_context: "WorkerContext", _lease: Lease, _error: Exception) -> StepFault | None:
    return None


class CardLanes:
    """The lanes of leases: a lease stays in its first lane, so that its needs are prefetched there."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self.executors = tuple(executors)
        self._lanes: dict[ReplicaId, int] = {}

    def choose(self, replica: ReplicaId) -> int:
        """Returns the lane of a lease: the one with the fewest, if it has none yet."""
        if replica not in self._lanes:
            counts = Counter(self._lanes.values())
            self._lanes[replica] = min(range(len(self.executors)), key=lambda lane: counts[lane])
        return self._lanes[replica]

    def find_executor(self, replica: ReplicaId) -> Executor:
        return self.executors[self.choose(replica)]

    def retain(self, replicas: Collection[ReplicaId]) -> None:
        """Forgets all leases but these, which are still to be computed."""
        self._lanes = {replica: lane for replica, lane in self._lanes.items() if replica in replicas}

    @property
    def windowed(self) -> Windowed:
        """Returns the newest task with windows that any of them computed."""
        return max((executor.windowed for executor in self.executors), key=lambda one: one.at)


UNPAYABLE = Units(2**63 - 1)
"""A price higher than any offer's."""
IN_VAIN: Final = 5
"""Times in a row that a part of an upload may fail."""
MOST_MORE: Final = 64
"""The most parts that are sent beyond one for each piece of a payload: a market may request the same one for ever."""
ENDED = frozenset({JobState.FINISHED, JobState.CANCELLED, JobState.FAILED})


@dataclass
class WorkerContext:
    settings: WorkerSettings
    limits: WorkLimits
    facts: ChainFacts
    wallet: Wallet
    market: MarketClient
    chain_view: ChainView
    account_store: AccountStore
    executor: Executor
    journal: Journal
    signals: Signals
    determinism_class: str
    stores: ObjectStores = field(default_factory=lambda: ObjectStores(frozenset()))
    find_pause: FindPause = never_paused
    describe_fault: Callable[["WorkerContext", Lease, Exception], StepFault | None] = describe_nothing
    """Returns the report to the market for an error of a lease's step."""
    more_executors: Sequence[Executor] = ()
    """One for each further card of this worker."""
    attending: set[ReplicaId] = field(default_factory=set)
    """Replicas whose referee a feature listens to, since the market reported that others answered otherwise."""
    unused: dict[JobId, UnusedReservation] = field(default_factory=dict)
    """Reservations that the market's last answer without a lease named."""
    _views: dict[JobId, ListedJob] = field(default_factory=dict)
    _efforts: dict[JobId, Effort] = field(default_factory=dict)
    _unfit: dict[JobId, None] = field(default_factory=dict)
    _step_seconds: dict[JobId, float] = field(default_factory=dict)
    lanes: CardLanes = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = CardLanes((self.executor, *self.more_executors))

    @property
    def domain(self) -> Domain:
        return self.facts.domain

    @property
    def signer(self) -> Address:
        """Returns the market's claimed signing address; offers count only if the chain's job names it too."""
        return self.facts.signer

    @property
    def least_units(self) -> Units:
        """Returns the least price in the market's unit, rounded up."""
        return Units(-(-self.limits.min_price // int(self.facts.unit)))

    @property
    def least_by_job(self) -> dict[JobId, Units]:
        """Returns the least price of the newest 64 jobs of known cost, so that nothing is leased only to be declined.

        For a job that this machine cannot do, it is higher than any price.
        """
        known = self._efforts.items() if self.limits.minimum.minds_effort else ()
        unit = int(self.facts.unit)
        prices = {job: Units(-(-compute_least_price(self.limits.minimum, effort) // unit)) for job, effort in known}
        return dict([*prices.items(), *((job, UNPAYABLE) for job in self._unfit)][-64:])

    def check_task_fits(self, job: JobId, publication: Publication) -> None:
        """Raises Refused if a task of the job is too heavy for this machine; then asks for no task of it again."""
        try:
            self.executor.check_task_fits(publication)
        except Refused:
            self._unfit[job] = None
            raise

    def effort(self, job: JobId, publication: Publication) -> Effort:
        """Returns the cost of one task of the job here, measured once.

        Raises MarketError if this machine cannot do it.
        """
        self.check_task_fits(job, publication)
        if job not in self._efforts:
            self._efforts[job] = self.executor.effort(publication)
        return self._efforts[job]

    @property
    def address(self) -> Address:
        return self.wallet.address

    @property
    def own_signer(self) -> Signer:
        return signer_of(self.wallet.key)

    @property
    def money(self) -> TokenUnit:
        return TokenUnit.of(self.facts)

    def view(self, job: JobId) -> ListedJob:
        """Returns the job as published, cached; raises NotFound if it has no publication."""
        if job not in self._views:
            listed = self.market.job(job)
            if listed.publication is None:
                raise NotFound(f"job {job} has no publication that this version reads: update gradmarket, or wait")
            self._views[job] = listed
        return self._views[job]

    def name(self, job: JobId) -> str:
        return self._views[job].name or job if job in self._views else job

    def unit(self, chain_job: int) -> Amount:
        return self.chain_view.unit(chain_job)

    def why_not(self, lease: Lease, in_flight: Sequence[InFlight]) -> Guard | None:
        """Returns the reason to decline a lease by policy, or None.

        Raises MarketError if a fact cannot be determined, Refused if this machine cannot do the task.
        """
        offer, publication = lease.offer.struct(), self.view(lease.job).publication
        if not 0 <= offer.job < 2**256:
            return Guard.NO_SUCH_TASK
        if publication is None:
            raise NotFound(f"job {lease.job} has no publication")
        proposal = Proposal(self.domain, lease.job, offer, lease.signature, publication)
        outstanding = self._compute_outstanding_units(offer.job, in_flight)
        chain = self.chain_view.wait_for_reservation(offer.job, Units(outstanding + offer.price))
        unpaid = self.account_store.unpaid(self.signer) + sum(held.sent for held in in_flight)
        standing = RequesterStanding(len(in_flight), outstanding, unpaid)
        if self.signer not in chain.signers:
            return Guard.FOREIGN_SIGNER
        known = self._step_seconds.get(lease.job, 0.0)
        reason = why_not(proposal, chain, standing, self.limits) or too_slow(known, lease.seconds)
        reason = reason or self._too_cheap(lease.job, proposal, chain.unit)
        if reason is None:
            self.check_task_fits(lease.job, publication)
        return reason

    def _too_cheap(self, job: JobId, proposal: Proposal, unit: Amount) -> Guard | None:
        """Measures the work's cost only if a price or a minimum depends on it."""
        price = proposal.publication.spec.price
        if price.name == PLAIN and not self.limits.minimum.minds_effort:
            return None
        effort = self.effort(job, proposal.publication)
        return too_cheap(Amount(proposal.offer.price * unit), price, effort, unit, self.limits)

    def _compute_outstanding_units(self, chain_job: int, in_flight: Sequence[InFlight]) -> Units:
        account = self.account_store.find(self.domain, chain_job)
        earned = max(account.earned, account.vouchered) if account else 0
        return Units(earned + sum(held.units for held in in_flight if held.lease.offer.job == chain_job))

    def compute(self, lease: Lease) -> tuple[Bytes, float]:
        """Returns the payload and the step's seconds."""
        publication = self.view(lease.job).publication
        if publication is None:
            raise NotFound(f"job {lease.job} has no publication")
        if publication.spec.secure is not None:
            raise Refused("its answers are summed under masks, which this worker is built without")
        payload, seconds = self.lanes.find_executor(lease.replica).work(publication, lease.offer.struct())
        self._step_seconds[lease.job] = seconds
        return payload, seconds

    def sketch(self, held: InFlight, payload: Path, opened: WaveOpened) -> SketchRequest | None:
        """Returns the signed sketch of the payload under the wave's seed; None if the job compares roots.

        Raises MarketError as `compute` does, OSError if the payload is gone.
        """
        publication = self.view(held.lease.job).publication
        if publication is None or not publication.spec.verifier.sketched:
            return None
        sketch = self.executor.sketch(publication, held.offer, payload.read_bytes(), seed_of(opened))
        mine = (self.determinism_class, self.address, self.own_signer)
        return sign_sketch(self.domain, held, opened, sketch, *mine)

    def expect(self, lease: Lease) -> None:
        """Prefetches the lease's inputs."""
        publication = self.view(lease.job).publication
        if publication is not None:
            self.lanes.find_executor(lease.replica).expect(publication, lease.offer.struct())

    def spec(self, job: JobId) -> JobSpec | None:
        """Returns the job's specification, if it was read."""
        publication = self._views[job].publication if job in self._views else None
        return None if publication is None else publication.spec

    def put(self, payload: Payload, door: str) -> bool:
        """Uploads to the object store; returns False on failure, so that the market gets the payload."""
        try:
            self.stores.put(door, payload)
        except (DownloadRefused, DownloadFailed) as problem:
            text = f"Could not put a payload past the market: {problem}"
            self.journal.once("store", text, why=str(problem))
            return False
        return True

    def put_in_parts(self, payload: Payload, held: InFlight) -> bool:
        """Uploads to the object store the parts that it lacks; returns False like `put`.

        A part that breaks off is sent again, up to IN_VAIN times in a row.
        """
        vain = 0
        try:
            left = payload.length // framing.PIECE + MOST_MORE
            while missing := self.market.missing_parts(held.replica, held.lease.fence):
                for part in missing:
                    if (left := left - 1) < 0:
                        raise DownloadFailed("the market asks for more parts than it has")
                    try:
                        self.stores.put(part.address, payload, part.start, part.length)
                        vain = 0
                    except DownloadFailed:
                        vain += 1
                        if vain > IN_VAIN:
                            raise
        except (DownloadRefused, DownloadFailed, ServiceProblem, OSError) as problem:
            text = f"Could not put a payload past the market: {problem}"
            self.journal.once("store", text, why=str(problem))
            return False
        return True

    def build_account(self, job: JobId, chain_job: int, **money: Any) -> JobAccount:
        """Returns an account of this market's job; `money` has further fields of it."""
        return JobAccount(
            chain_id=self.domain.chain_id,
            contract=self.domain.contract,
            instance=self.domain.instance,
            chain_job=chain_job,
            job=job,
            signer=self.signer,
            unit=self.unit(chain_job),
            protocol=PROTOCOL,
            **money,
        )

    def accounts(self) -> list[JobAccount]:
        """Returns this market's accounts that are not closed."""
        return [
            account for account in self.account_store.accounts if account.domain == self.domain and not account.closed
        ]

    def jobs_to_ask_about(self, leaving: bool) -> tuple[JobId, ...]:
        """Returns the jobs whose newest voucher to request again: unpaid ones, or all of them when leaving."""
        return tuple(account.job for account in self.accounts() if leaving or account.unpaid)[:64]

    def has_ended(self, account: JobAccount) -> bool:
        return self.market.job(account.job).state in ENDED
