"""One market that this worker works for: its loop, its upkeep, and how it is joined and left."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from gradmarket.contracts.errors import ChainError
from gradmarket.market.errors import MarketError
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire import ChainFacts
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.worker import chains, consents
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
from gradmarket.worker.report import Journal
from gradmarket.worker.settings import Settings
from gradmarket.worker.signals import Signals
from gradmarket.worker.signin import Credentials
from gradmarket.worker.stores import Stores
from gradmarket.worker.upkeep import Upkeep
from gradmarket.worker.vouchers import Book
from gradmarket.worker.wallet import Wallet

Wrap = Callable[[Compute], Compute]
LAST_WORDS: Final = 3
"""Polls at most that say what is still to be said when leaving."""
PROBLEM_PAUSE_S: Final = 3.0


@dataclass(frozen=True)
class Crew:
    """What the markets share: one wallet, one book, one child that computes. `wrapper` goes around what it computes."""

    settings: Settings
    wallet: Wallet
    book: Book
    runner: Runner
    journal: Journal
    signals: Signals
    stack: ExitStack
    wrapper: Wrap | None = None

    @property
    def payout(self) -> Address:
        return self.settings.payout or self.wallet.address


def opened(crew: Crew, market: Market, facts: ChainFacts, named: bool = True) -> "Stall":
    """Signs nothing yet. Raises Untrusted where the market's chain is not what it says."""
    settings, key = crew.settings, crew.wallet
    consent = consents.fitting(settings.consents, facts, key.address, crew.payout)
    market.identify(Credentials(key, crew.payout, facts.chain_id, consent))
    sight = _sight(settings, facts, key.address, crew.journal)
    cache = Cache(settings.data / "cache", settings.max_disk)
    fetcher = Fetcher(
        cache, market.origin, settings.max_download, bearer=market.bearer, stores=settings.stores, named=named
    )
    crew.stack.callback(fetcher.close)
    limits = limits_of(settings)
    _say_unconfined(crew)
    bench = Bench(crew.runner, fetcher, limits, crew.wrapper(crew.runner.compute) if crew.wrapper else None)
    desk = Desk(
        settings,
        limits,
        facts,
        key,
        market,
        sight,
        crew.book,
        bench,
        crew.journal,
        crew.signals,
        crew.runner.determinism_class(),
        Stores(settings.stores),
    )
    return Stall(desk, Purse(sight, key.key, crew.book, crew.journal, desk.money, crew.payout), crew.payout)


def _say_unconfined(crew: Crew) -> None:
    missing = crew.runner.missing()
    if missing:
        text = f"Warning: this machine does not confine what computes strangers' models in: {', '.join(missing)}."
        crew.journal.once("unconfined", text, missing=list(missing))


def _sight(settings: Settings, facts: ChainFacts, me: Address, journal: Journal) -> Sight:
    url = choose_rpc(settings.node, facts)
    if settings.node is None:
        text = f"Warning: the chain is read through the market's own node {url}: fit for a local chain only."
        journal.say("market_rpc", text, rpc=url)
    sight = Sight(join(url, facts), me)
    chains.keep(settings.data, facts)
    return sight


def runner_settings(settings: Settings) -> RunnerSettings:
    return RunnerSettings(
        threads=settings.threads,
        device=settings.device,
        memory_bytes=settings.max_memory,
        seconds=settings.step_s,
        operations=int(settings.max_flops),
    )


def limits_of(settings: Settings) -> Limits:
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
        max_disk=settings.max_disk,
        device=settings.device,
    )


class Stall:
    """`worth`: pay for a second's work at its best job, in its token's smallest unit; zero where none is known."""

    def __init__(self, desk: Desk, purse: Purse, payout: Address) -> None:
        self.desk = desk
        self._purse = purse
        self._payout = payout
        self._shelf = Shelf(desk.settings.data / "held" / f"{desk.domain.instance.hex()[:16]}-{desk.signer[2:]}")
        self._loop = Loop(desk, self._shelf)
        self._upkeep = Upkeep(desk, purse, self._shelf)
        self.worth = Fraction(0)
        self._gone = False

    @property
    def token(self) -> tuple[Hash, Address]:
        """What it pays in: the chain, by its first block, and the token's contract, both found there."""
        deployment = self.desk.sight.ledger.deployment
        return deployment.genesis, deployment.token

    @property
    def in_flight(self) -> int:
        return len(self._shelf.open())

    def start(self) -> None:
        desk = self.desk
        try:
            self._purse.get_gas()
        except ChainError as error:
            desk.journal.say("gas", f"Could not get gas money: {error}")
        with_name = f"Worker {desk.address}, paid out to {self._payout}, class {desk.determinism_class}"
        facts = {"address": desk.address, "payout": self._payout, "market": desk.market.origin}
        desk.journal.say("joining", f"{with_name}.", **facts)
        self.look()

    def look(self) -> None:
        """Says and remembers what its best job is worth."""
        found = prospect(self.desk)
        self.worth = found.worth if found else Fraction(0)

    @property
    def busy(self) -> bool:
        """Whether a replica is still to be judged, by a market that can be asked."""
        return self._loop.busy and not self._gone

    def turn(self, leaving: bool = False, wait_s: float | None = None, room: int | None = None) -> None:
        """One poll and all that follows from it. Raises MarketError."""
        self._loop.turn(leaving, wait_s, room)

    def turn_patiently(self, leaving: bool = False, wait_s: float | None = None) -> None:
        """What goes wrong with market or chain is said and tried again, unless the market is not to be trusted."""
        try:
            self.turn(leaving, wait_s)
        except (Unreachable, Untrusted):
            raise
        except MarketError as error:
            self.say_problem(error)
            self.desk.signals.pause(PROBLEM_PAUSE_S)

    def upkeep(self) -> None:
        self._upkeep.turn()

    def say_problem(self, error: MarketError) -> None:
        self.desk.journal.once("problem", str(error))

    def finish(self, wait_s: float) -> None:
        """A turn that takes nothing new; a market that cannot be asked any more is done with."""
        if self._gone:
            return
        try:
            self.turn_patiently(leaving=True, wait_s=wait_s)
        except (Unreachable, Untrusted) as error:
            self._gone = True
            self.desk.journal.say("unreachable", f"{error}. What was vouchered is redeemed without it.")

    def leave(self) -> None:
        """Says what is still to be said, and takes its money along."""
        for _ in range(LAST_WORDS):
            self.finish(wait_s=0.0)
            if not self._loop.owes_word:
                break
        self.desk.book.keep()
        self._upkeep.close_all()

    def leave_now(self) -> None:
        try:
            self._loop.leave_now()
        except MarketError as error:
            self.desk.journal.say("unreachable", f"The leases lapse by themselves: {error}")
