"""One market that this worker works for: joining it, its loop, its upkeep, and leaving it."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, Protocol

from contracts.gas_price import GWEI
from contracts.token_moves import token_move
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.held_rows import HeldRows
from gradmarket.compute.task_run import Compute
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.money import TokenUnit
from gradmarket.market.release import find_release_difference
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.poll import Lease, StepFault, hash_of
from gradmarket.market.wire.sign_in import ChainFacts, ConsentRequest
from gradmarket.network.chain_errors import ChainError
from gradmarket.runner import Runner
from worker import Untrusted
from worker.journal import Journal
from worker.markets.background import LeaseComputation
from worker.markets.expected_pay import estimate_best_prospect
from worker.markets.leasing import UNFIT
from worker.markets.loop import Loop
from worker.markets.worker_context import FindPause, WorkerContext, never_paused
from worker.money import known_chains
from worker.money.account_store import AccountStore, JobAccount
from worker.money.chain_view import ChainView, choose_rpc, connect_to_deployment
from worker.money.redeemer import DROPPED_WITHIN_S, GasCeiling, Redeemer
from worker.protocol.client import Credentials, MarketClient
from worker.protocol.in_flight import InFlightFolder
from worker.protocol.outgoing import ObjectStores
from worker.protocol.policy import limits_of
from worker.settings import WorkerSettings
from worker.signals import Signals
from worker.wallet import Wallet

Wrap = Callable[[Compute], Compute]
LAST_WORDS: Final = 3
"""The most polls made when leaving to deliver the remaining reports."""
PROBLEM_PAUSE_S: Final = 3.0
ASK_S: Final = 5.0
"""Longest wait of a poll, in seconds, while steps that the market needs first are undone."""


class SessionPart(Protocol):
    """Runs beside one market's loop, in a thread of its own."""

    def start(self) -> None: ...

    def stop(self, wait_s: float = ...) -> None:
        """Ends it; waits at most `wait_s` seconds for its current action."""


class MarketEntry(Protocol):
    """A market's condition before it gives leases, such as a declared dataset."""

    @property
    def done(self) -> bool: ...

    def turn(self) -> None:
        """Fulfils it unless it is done; logs once why it cannot."""


class SessionHooks(Protocol):
    """The hooks of each feature that a joined market calls (worker.feature)."""

    def find_consent(
        self, settings: WorkerSettings, facts: ChainFacts, worker: Address, payout: Address
    ) -> ConsentRequest | None: ...

    def open_entry(self, shared: "Shared", context: WorkerContext) -> MarketEntry | None: ...

    def open_session_part(self, context: WorkerContext, replica_files: InFlightFolder) -> SessionPart | None: ...

    def open_computation(self, context: WorkerContext, replica_files: InFlightFolder) -> LeaseComputation | None: ...

    def describe_fault(self, context: WorkerContext, lease: Lease, error: Exception) -> StepFault | None: ...


@dataclass(frozen=True)
class Shared:
    """The parts that all markets share: a wallet, an account store, a runner. `wrapper` wraps the compute function."""

    settings: WorkerSettings
    wallet: Wallet
    account_store: AccountStore
    runner: Runner
    journal: Journal
    signals: Signals
    stack: ExitStack
    wrapper: Wrap | None = None
    own: HeldRows | None = None
    features: Sequence[SessionHooks] = ()
    find_pause: FindPause = never_paused
    more_runners: Sequence[Runner] = ()
    """One for each further card, all of one class."""

    @property
    def payout(self) -> Address:
        return self.settings.payout or self.wallet.address


def open_market_session(shared: Shared, market: MarketClient, facts: ChainFacts, named: bool = True) -> "MarketSession":
    """Returns the session; signs nothing yet.

    Raises Refused if the market is of another release, Untrusted if its chain differs from its statements.
    """
    if other := find_release_difference(facts.protocol, market.origin, "this worker"):
        raise Refused(*other)
    settings, key = shared.settings, shared.wallet
    limits = limits_of(settings, TokenUnit.of(facts))
    found = (feature.find_consent(settings, facts, key.address, shared.payout) for feature in shared.features)
    consent = next((one for one in found if one is not None), None)
    market.identify(Credentials(key, shared.payout, facts.chain_id, consent))
    chain_view = _chain_view(settings, facts, market.origin, key.address, shared.journal)
    known_chains.record_joined_market(settings.data, market.origin, facts.chain_id)
    fetcher = build_fetcher(settings, market, named)
    shared.stack.callback(fetcher.close)
    if missing := shared.runner.missing():
        text = f"Warning: this machine does not confine what computes strangers' models in: {', '.join(missing)}."
        shared.journal.once("unconfined", text, missing=list(missing))
    window_states = Cache(settings.data / "windows", settings.max_window_states)
    executor, *more = (
        Executor(
            runner,
            fetcher,
            limits,
            shared.wrapper(runner.compute) if shared.wrapper else None,
            window_states,
            shared.own,
        )
        for runner in (shared.runner, *shared.more_runners)
    )
    context = WorkerContext(
        settings,
        limits,
        facts,
        key,
        market,
        chain_view,
        shared.account_store,
        executor,
        shared.journal,
        shared.signals,
        shared.runner.determinism_class(),
        ObjectStores(settings.stores),
        shared.find_pause,
        partial(_describe_fault, shared.features),
        more,
    )
    return MarketSession(
        context,
        Redeemer(
            chain_view,
            key.key,
            shared.account_store,
            shared.journal,
            context.money,
            shared.payout,
            ceiling=None
            if settings.max_fee is None
            else GasCeiling(int(settings.max_fee * GWEI), settings.redeem_before_s),
        ),
        shared.payout,
        settings.alone,
        [entry for one in shared.features if (entry := one.open_entry(shared, context)) is not None],
        shared.features,
    )


def build_fetcher(settings: WorkerSettings, market: MarketClient, named: bool = True) -> Fetcher:
    """Returns a fetcher of the market's blobs, which its user closes. `named` as in Fetcher."""
    return Fetcher(
        Cache(settings.downloads, settings.max_disk),
        market.origin,
        settings.max_download,
        bearer=market.bearer,
        stores=settings.stores,
        named=named,
        data_servers=settings.data_servers,
    )


def _describe_fault(
    features: Sequence[SessionHooks], context: WorkerContext, lease: Lease, error: Exception
) -> StepFault | None:
    found = (feature.describe_fault(context, lease, error) for feature in features)
    return next((fault for fault in found if fault is not None), None)


def _chain_view(settings: WorkerSettings, facts: ChainFacts, market: str, me: Address, journal: Journal) -> ChainView:
    url = choose_rpc(settings.node, facts, market)
    if settings.node is None:
        text = f"Warning: the chain is read through the market's own node {url}: fit for a local chain only."
        journal.report("market_rpc", text, rpc=url)
    ledger = connect_to_deployment(url, facts)
    move = token_move(ledger.web3, facts.token, facts.contract, me)
    if move is not None and move.fault:  # it takes or loses a part of the moved amount, as far as the chain shows
        raise Untrusted(f"the market's token {facts.token} {move.fault}")
    chain_view = ChainView(ledger, me)
    known_chains.store_chain_facts(settings.data, facts)
    return chain_view


def describe_problem(error: Exception) -> str:
    """Returns the sentences of a market's error; others, which its answers led to, are named with their type."""
    if isinstance(error, MarketError):
        return "; ".join(filter(None, (str(error), error.remedy)))
    return f"{type(error).__name__}: {error}"


class MarketSession:
    """A joined market. `worth`: pay per second at its best job, in the token's smallest unit; zero if unknown.

    `alone`: there is no other market, so the runner is this one's, and computes while the market is polled.
    """

    def __init__(
        self,
        context: WorkerContext,
        redeemer: Redeemer,
        payout: Address,
        alone: bool,
        entries: Sequence[MarketEntry] = (),
        features: Sequence[SessionHooks] = (),
    ) -> None:
        self.context = context
        self._redeemer = redeemer
        self._payout = payout
        self._entries = entries
        self._replica_files = InFlightFolder(
            context.settings.data / "held" / f"{context.domain.instance.hex()[:16]}-{context.signer[2:]}"
        )
        found = [feature.open_computation(context, self._replica_files) for feature in features]
        computations = [one for one in found if one is not None]
        self._loop = Loop(context, self._replica_files, beside=alone, computations=computations)
        self._upkeep = Upkeep(context, redeemer, self._replica_files)
        parts = (feature.open_session_part(context, self._replica_files) for feature in features)
        self._parts = [part for part in parts if part is not None]
        self.worth = Fraction(0)
        self._gone = False

    @property
    def token(self) -> tuple[Hash, Address]:
        """Returns its currency: the genesis block hash and the token's contract, both read from the chain."""
        deployment = self.context.chain_view.ledger.deployment
        return deployment.genesis, deployment.token

    @property
    def in_flight(self) -> int:
        return len(self._replica_files.open())

    @property
    def earned(self) -> int:
        """Returns the sum of all vouchers of this market, in its units: it never falls."""
        context = self.context
        ours = [one for one in context.account_store.accounts if one.domain == context.domain]
        return sum(account.vouchered for account in ours if account.signer == context.signer)

    @property
    def works(self) -> bool:
        """Returns whether work is under way: it holds one of the worker's few places against other markets."""
        return any(held.under_way(time.time()) for held in self._replica_files.open())

    def start(self) -> None:
        context = self.context
        try:
            self._redeemer.get_gas()
        except ChainError as error:
            context.journal.report("gas", f"Could not get gas money: {error}")
        with_name = f"Worker {context.address}, paid out to {self._payout}, class {context.determinism_class}"
        facts = {"address": context.address, "payout": self._payout, "market": context.market.origin}
        context.journal.report("joining", f"{with_name}.", **facts)
        for part in self._parts:
            part.start()
        for entry in self._entries:
            entry.turn()
        self.look()

    def look(self) -> None:
        """Estimates, logs and stores the worth of its best job."""
        best = estimate_best_prospect(self.context)
        self.worth = best.worth if best else Fraction(0)

    @property
    def busy(self) -> bool:
        """Returns whether a replica has no final verdict yet and the market can still be reached."""
        return self._loop.busy and not self._gone

    def turn(self, leaving: bool = False, wait_s: float | None = None, room: int | None = None) -> None:
        """Does one poll and everything that follows from it. Raises MarketError."""
        joined = all(entry.done for entry in self._entries)
        most = self.context.settings.wait_s if wait_s is None else wait_s
        self._loop.turn(leaving, most if joined else min(most, ASK_S), room)

    def turn_patiently(self, leaving: bool = False, wait_s: float | None = None) -> None:
        """Does one turn; logs a problem of market or chain and pauses. Raises ServiceUnreachable and Untrusted."""
        try:
            self.turn(leaving, wait_s)
        except (ServiceUnreachable, Untrusted):
            raise
        except UNFIT as error:
            self.report_problem(error)
            self.context.signals.pause(PROBLEM_PAUSE_S)

    def run_upkeep(self) -> None:
        self._upkeep.turn()
        for entry in self._entries:
            entry.turn()

    def report_problem(self, error: Exception) -> None:
        self.context.journal.once("problem", describe_problem(error))

    def finish(self, wait_s: float) -> None:
        """Does a turn that takes no new work; gives up on a market that is unreachable or untrusted."""
        if self._gone:
            return
        try:
            self.turn_patiently(leaving=True, wait_s=wait_s)
        except (ServiceUnreachable, Untrusted) as error:
            self._gone = True
            self.context.journal.report("unreachable", f"{error}. What was vouchered is redeemed without it.")

    def leave(self) -> None:
        """Delivers the remaining reports, then redeems the vouchers and closes the accounts."""
        for part in self._parts:
            part.stop()
        for _ in range(LAST_WORDS):
            self.finish(wait_s=0.0)
            if not self._loop.owes_word:
                break
        self.context.account_store.save()
        self._upkeep.close_all()

    def leave_now(self) -> None:
        for part in self._parts:
            part.stop(0.0)
        try:
            self._loop.leave_now()
        except MarketError as error:
            self.context.journal.report("unreachable", f"The leases expire by themselves: {error}")


URGENT_S: Final = 1.0
CLOSING_TRIES: Final = 5
CLOSING_PAUSE_S: Final = 1.0
RECENT_S: Final = 3_600.0
"""Seconds after an account's end within which each check of a running worker finds a payment that a re-org dropped."""


class Upkeep:
    def __init__(self, context: WorkerContext, redeemer: Redeemer, replica_files: InFlightFolder) -> None:
        self._context = context
        self._redeemer = redeemer
        self._replica_files = replica_files
        self._next = 0.0
        self._next_urgent = 0.0
        self._opened_unused = set[int]()
        self._dropped_within_s = DROPPED_WITHIN_S

    def turn(self) -> None:
        """Checks all accounts every `upkeep_s` seconds, and sooner in trouble."""
        if time.monotonic() < self._next and not self._is_urgent_upkeep_due():
            return
        self._next = time.monotonic() + self._context.settings.upkeep_s
        self._open_unused_accounts()
        try:
            self._redeemer.reopen_dropped_accounts(self._dropped_within_s)
            self._dropped_within_s = RECENT_S
        except UNFIT as error:
            self._context.journal.once("upkeep", str(error))
        for account in self._context.accounts():
            try:
                self._look_after(account)
            except UNFIT as error:
                self._context.journal.once("upkeep", f"{account.job}: {error}", job=account.job)

    def _is_debt_redeemable(self) -> bool:
        """Returns whether the requester owes too much while one of its vouchers is not redeemed."""
        if self._context.account_store.unpaid(self._context.signer) < self._context.limits.unpaid:
            return False
        return any(account.redeemable for account in self._context.accounts())

    def _is_urgent_upkeep_due(self) -> bool:
        if time.monotonic() < self._next_urgent or not self._is_debt_redeemable():
            return False
        self._next_urgent = time.monotonic() + URGENT_S
        return True

    def _look_after(self, account: JobAccount) -> None:
        settings, limits = self._context.settings, self._context.limits
        if account.vouchered:
            self._redeemer.name_payout(account)
        own = account.signer == self._context.signer  # others on the contract have work in flight unknown here
        in_flight = any(held.lease.offer.job == account.chain_job for held in self._replica_files.open())
        if self._is_debt_redeemable() or self._redeemer.due(account, limits.redeem_at, settings.redeem_before_s):
            self._redeemer.redeem(account)
        elif own and not (in_flight or account.unpaid) and self._context.has_ended(account):
            self._redeemer.close(account)

    def close_all(self) -> None:
        """Redeems every job's money and releases this market's reservations, in at most CLOSING_TRIES tries each."""
        self._open_unused_accounts()
        for account in self._context.accounts():
            own = account.signer == self._context.signer
            close = self._redeemer.close if own else self._redeemer.redeem
            for _ in range(CLOSING_TRIES):
                if close(account):
                    break
                self._context.signals.pause(CLOSING_PAUSE_S)

    def _open_unused_accounts(self) -> None:
        """Opens an account for each reservation that no task came for, so that closing it releases the money.

        Once for each job: a market could reserve anew for a quarter of the gas that a release costs the worker. Another
        market's job under a name of this one would be a stranger's account.
        """
        context = self._context
        unused, context.unused = context.unused, {}
        for job, number, earned in ((job, named.chain_job, named.earned) for job, named in unused.items()):
            try:
                held = context.chain_view.ledger.account(number, self._redeemer.address)
                if held.reserved <= max(held.credited, earned) or number in self._opened_unused:
                    continue
                opened, named = context.chain_view.opened(number), context.view(job).publication
                known = (job, context.signer, opened.spec_digest)
                if named is None or known != (named.job, opened.signer, hash_of(named.digest)):
                    raise Refused(
                        f"the market names a reservation of job {number} of the contract, which is another job"
                    )
                self._opened_unused.add(number)
                context.account_store.open_account(context.build_account(job, number, earned=earned))
            except UNFIT as error:
                context.journal.once("upkeep", f"{job}: {error}", job=job)
