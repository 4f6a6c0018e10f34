"""One session of a worker: puts the pieces together, works until it is asked to leave, and settles up."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from gradmarket.contracts.errors import ChainError
from gradmarket.contracts.rpc import LOCAL_CHAIN_IDS
from gradmarket.market.errors import MarketError
from gradmarket.market.terms import Address
from gradmarket.market.wire import ChainFacts
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.worker import chains, durable, wallet
from gradmarket.worker.bench import Bench, Compute
from gradmarket.worker.cache import Cache
from gradmarket.worker.chain import Sight, choose_rpc, join
from gradmarket.worker.client import Market
from gradmarket.worker.desk import Desk
from gradmarket.worker.fetch import Fetcher
from gradmarket.worker.held import Shelf
from gradmarket.worker.loop import Loop
from gradmarket.worker.money import Purse
from gradmarket.worker.policy import Limits
from gradmarket.worker.problems import Unreachable, Untrusted
from gradmarket.worker.prospect import prospect
from gradmarket.worker.report import Journal, Summary, summary, totals
from gradmarket.worker.settings import Settings
from gradmarket.worker.signals import LeaveNow, LeaveSoon, Signals
from gradmarket.worker.signin import Credentials
from gradmarket.worker.stores import Stores
from gradmarket.worker.upkeep import Upkeep
from gradmarket.worker.vouchers import Book

Wrap = Callable[[Compute], Compute]
LAST_WORDS: Final = 3
"""Polls at most that say what is still to be said when leaving."""
PROBLEM_PAUSE_S: Final = 3.0


def run(
    settings: Settings,
    compute_wrapper: Wrap | None = None,
    journal: Journal | None = None,
    signals: Signals | None = None,
) -> Summary:
    """Works for the market of `settings` until the first signal; returns the session's sums.

    Raises Untrusted where the market's chain is not what it says, Conflict where another worker uses the folder.
    """
    journal = journal or Journal()
    if signals is None:
        signals = Signals()
        if threading.current_thread() is threading.main_thread():
            signals.install()
    with _session(settings, compute_wrapper, journal, signals) as session:
        return session.work()


@contextmanager
def _session(settings: Settings, wrapper: Wrap | None, journal: Journal, signals: Signals) -> Iterator["_Session"]:
    with ExitStack() as stack:
        stack.enter_context(durable.lock(settings.data))
        market = Market(
            settings.origin, lambda seconds: _keep_trying(signals, seconds, settings), signals.pause, journal
        )
        stack.callback(market.close)
        facts = market.facts()
        local = facts.chain_id in LOCAL_CHAIN_IDS
        key = wallet.load_or_create(settings.data, settings.secret, local or settings.plain_key)
        journal.say("wallet", key.backup(), address=key.address, path=str(key.path))
        payout = settings.payout or key.address
        market.identify(Credentials(key, payout, facts.chain_id))
        sight = _sight(settings, facts, key.address, journal)
        runner = stack.enter_context(Runner(_runner_settings(settings)))
        fetcher = Fetcher(
            Cache(settings.data / "cache", settings.max_disk),
            settings.origin,
            settings.max_download,
            bearer=market.bearer,
            stores=settings.stores,
        )
        stack.callback(fetcher.close)
        limits = _limits(settings)
        bench = Bench(runner, fetcher, limits, wrapper(runner.compute) if wrapper else None)
        book = Book(settings.data / "book.json")
        desk = Desk(
            settings,
            limits,
            facts,
            key,
            market,
            sight,
            book,
            bench,
            journal,
            signals,
            runner.determinism_class(),
            Stores(settings.stores),
        )
        yield _Session(desk, Purse(sight, key.key, book, journal, desk.money), payout)


def _keep_trying(signals: Signals, seconds: float, settings: Settings) -> bool:
    if signals.at_once:
        return False
    return not signals.leaving or seconds < settings.leave_market_s


def _sight(settings: Settings, facts: ChainFacts, me: Address, journal: Journal) -> Sight:
    url = choose_rpc(settings.node, facts)
    if settings.node is None:
        text = f"Warning: the chain is read through the market's own node {url}: fit for a local chain only."
        journal.say("market_rpc", text, rpc=url)
    sight = Sight(join(url, facts), me)
    chains.keep(settings.data, facts)
    return sight


def _runner_settings(settings: Settings) -> RunnerSettings:
    return RunnerSettings(
        threads=settings.threads,
        device=settings.device,
        memory_bytes=settings.max_memory,
        seconds=settings.step_s,
        operations=int(settings.max_flops),
    )


def _limits(settings: Settings) -> Limits:
    return Limits(
        jobs=settings.jobs,
        min_price=settings.min_price,
        min_per_tflop=settings.min_per_tflop,
        min_per_hour=settings.min_per_hour,
        leases=settings.leases,
        unpaid=settings.unpaid,
        margin_s=settings.margin_s,
        max_flops=settings.max_flops,
        max_memory=settings.max_memory,
    )


class _Session:
    def __init__(self, desk: Desk, purse: Purse, payout: Address) -> None:
        self._desk = desk
        self._purse = purse
        self._payout = payout
        shelf = Shelf(desk.settings.data / "held")
        shelf.drop_foreign(desk.domain.instance)
        self._loop = Loop(desk, shelf)
        self._upkeep = Upkeep(desk, purse, shelf)
        self._before = totals(desk.book.accounts)

    def work(self) -> Summary:
        """Until the first signal and what follows from it, or until the second."""
        try:
            self._until_asked_to_leave()
            self._leave()
        except LeaveNow:
            return self._leave_now()
        return self._sums(finished=True)

    def _start(self) -> None:
        desk = self._desk
        try:
            self._purse.get_gas()
            self._purse.name_payout(self._payout)
        except ChainError as error:
            desk.journal.say("gas", f"Could not register the payout address on-chain: {error}")
        with_name = f"Worker {desk.address}, paid out to {self._payout}, class {desk.determinism_class}"
        desk.journal.say("joining", f"{with_name}.", address=desk.address, payout=self._payout)
        prospect(desk)

    def _until_asked_to_leave(self) -> None:
        try:
            self._start()
            while not self._desk.signals.leaving:
                self._turn(leaving=False)
                self._upkeep.turn()
        except (LeaveSoon, Unreachable):
            return

    def _turn(self, leaving: bool, wait_s: float | None = None) -> None:
        """What goes wrong with market or chain is said and tried again, unless the market is not to be trusted."""
        try:
            self._loop.turn(leaving, wait_s)
        except (Unreachable, Untrusted):
            raise
        except MarketError as error:
            self._desk.journal.once("problem", str(error))
            self._desk.signals.pause(PROBLEM_PAUSE_S)

    def _leave(self) -> None:
        desk, until = self._desk, time.monotonic() + self._desk.settings.leave_s
        desk.journal.say("leaving", "Leaving: finishing what is in flight. A second signal leaves at once.")
        try:
            while self._loop.busy and time.monotonic() < until:
                self._turn(leaving=True, wait_s=min(desk.settings.wait_s, max(0.0, until - time.monotonic())))
            for _ in range(LAST_WORDS):
                self._turn(leaving=True, wait_s=0.0)
                if not self._loop.owes_word:
                    break
        except Unreachable as error:
            desk.journal.say("unreachable", f"{error}. What was vouchered is redeemed without it.")
        self._desk.book.keep()
        self._upkeep.close_all()

    def _leave_now(self) -> Summary:
        self._desk.signals.at_once = True
        self._desk.book.keep()
        try:
            self._loop.leave_now()
        except MarketError as error:
            self._desk.journal.say("unreachable", f"The leases lapse by themselves: {error}")
        return self._sums(finished=False)

    def _sums(self, finished: bool) -> Summary:
        desk = self._desk
        done = summary(desk.address, self._payout, self._before, totals(desk.book.accounts), finished)
        desk.journal.sums(done, desk.money)
        return done
