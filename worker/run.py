"""One session of a worker: puts the pieces together, works until it is asked to leave, and settles up."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gradmarket.contracts.rpc import LOCAL_CHAIN_IDS, connect
from gradmarket.contracts.transactions import chain_id
from gradmarket.market.errors import Refused
from gradmarket.runner import Runner
from gradmarket.worker import durable, wallet
from gradmarket.worker.problems import Unreachable, Untrusted
from gradmarket.worker.report import Journal, Summary, summary, totals
from gradmarket.worker.round import Round
from gradmarket.worker.settings import Settings
from gradmarket.worker.signals import LeaveNow, LeaveSoon, Signals
from gradmarket.worker.stall import Crew, Wrap, runner_settings
from gradmarket.worker.vouchers import Book
from gradmarket.worker.watch import Watch


def run(
    settings: Settings,
    compute_wrapper: Wrap | None = None,
    journal: Journal | None = None,
    signals: Signals | None = None,
) -> Summary:
    """Works for the markets of `settings` until the first signal; returns the session's sums.

    Raises Untrusted where the only market is not what it says, once its vouchers are redeemed; Conflict where another
    worker uses the folder; Refused where markets are to be discovered and no node is named.
    """
    journal = journal or Journal()
    if signals is None:
        signals = Signals()
        if threading.current_thread() is threading.main_thread():
            signals.install()
    with (
        _crew(settings, compute_wrapper, journal, signals) as crew,
        Watch(settings, crew.wallet, journal).running() as watch,
    ):
        return _work(crew, watch)


@contextmanager
def _crew(settings: Settings, wrapper: Wrap | None, journal: Journal, signals: Signals) -> Iterator[Crew]:
    if settings.discover and settings.node is None:
        raise Refused("markets are discovered by a node of your own: name it (--rpc)")
    with ExitStack() as stack:
        stack.enter_context(durable.lock(settings.data))
        key = wallet.load_or_create(settings.data, settings.secret, _plain_key(settings))
        journal.say("wallet", key.backup(), address=key.address, path=str(key.path))
        runner = stack.enter_context(Runner(runner_settings(settings)))
        yield Crew(settings, key, Book(settings.data / "book.json"), runner, journal, signals, stack, wrapper)


def _plain_key(settings: Settings) -> bool:
    """Without a node of the worker's own only markets on a local chain are believed."""
    if settings.plain_key or settings.node is None:
        return True
    return chain_id(connect(settings.node)) in LOCAL_CHAIN_IDS


def _work(crew: Crew, watch: Watch) -> Summary:
    """Until the first signal and what follows from it, or until the second."""
    before, round_ = totals(crew.book.accounts), Round(crew)
    finished = True
    try:
        _until_asked_to_leave(crew, round_)
        _leave(crew, round_)
    except LeaveNow:
        finished = False
        crew.signals.at_once = True
        crew.book.keep()
        for stall in round_.stalls:
            stall.leave_now()
    after = totals(crew.book.accounts)
    done = summary(crew.wallet.address, crew.payout, before, after, watch.standing, finished)
    if round_.stalls:
        crew.journal.sums(done, round_.stalls[0].desk.money)
    return done


def _until_asked_to_leave(crew: Crew, round_: Round) -> None:
    try:
        round_.start()
        while not crew.signals.leaving:
            round_.turn()
    except (LeaveSoon, Unreachable):
        return
    except Untrusted:
        if round_.stalls:
            _leave(crew, round_)
        raise


def _leave(crew: Crew, round_: Round) -> None:
    crew.journal.say("leaving", "Leaving: finishing what is in flight. A second signal leaves at once.")
    round_.leave(time.monotonic() + crew.settings.leave_s)
