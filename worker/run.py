"""One session of a worker: sets up its parts, works until a signal to leave, and redeems its earnings."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Final

from contracts.rpc import LOCAL_CHAIN_IDS, connect_to_node
from contracts.transactions import chain_id
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.compute import machine
from gradmarket.compute.own_machine import open_runners
from gradmarket.market.errors import Refused
from worker import Untrusted, durable, wallet
from worker.features import FEATURES
from worker.journal import Journal
from worker.markets.market_session import Shared, Wrap
from worker.markets.scheduler import Scheduler
from worker.markets.worker_context import never_paused
from worker.money.account_store import check_a_key_may_be_made, open_account_store
from worker.money.session_summary import SoFar, Summary, build_session_summary, log_session_summary, sum_accounts
from worker.protocol.policy import runner_settings
from worker.settings import WorkerSettings
from worker.signals import LeaveNow, LeaveSoon, Signals

NEED_A_FEATURE: Final = {
    "dataset": "rows of its own: leave --dataset out",
    "discover": "the discovery of markets: name each with --market",
    "page": "a page of its own: leave --page out",
    "consents": "consents of payout keys: leave --consent out",
    **dict.fromkeys(("hours", "idle", "max_watts", "max_celsius"), "rules of when it works: leave them out"),
}
"""Settings that a feature serves -> the text of a worker without it."""
MOST_LEASES: Final = 64
"""The most leases of all cards together: a poll requests no more."""
_CHOOSE: Final = "Change it with --device and --threads; take --threads 1 where several workers share a machine."


def run_worker(
    settings: WorkerSettings,
    compute_wrapper: Wrap | None = None,
    journal: Journal | None = None,
    signals: Signals | None = None,
) -> Summary:
    """Works for the markets of `settings` until the first signal; returns the session's summary.

    Raises Untrusted if the only market's statements do not hold, after redeeming its vouchers; Conflict if another
    worker uses the folder; Refused if markets are to be discovered and no node is set.
    """
    machine.retain_freed_memory()
    journal = journal or Journal()
    if signals is None:
        signals = Signals()
        if threading.current_thread() is threading.main_thread():
            signals.install_handlers()
    with _open_shared_parts(settings, compute_wrapper, journal, signals) as shared, ExitStack() as beside:
        for feature in FEATURES:
            beside.enter_context(feature.run_beside(shared))
        # leaves after the first signal, and at once at the second
        sources = [source for feature in FEATURES if (source := feature.market_source(shared)) is not None]
        before, round_ = sum_accounts(shared.account_store.accounts), Scheduler(shared, sources)
        finished = True
        try:
            _work_until_leave(shared, round_)
            _leave_markets(shared, round_)
        except LeaveNow:
            finished = False
            shared.signals.at_once = True
            shared.account_store.save()
            for session in round_.sessions:
                session.leave_now()
        after = sum_accounts(shared.account_store.accounts)
        accused = sum(feature.count_accusations(shared.settings) for feature in FEATURES)
        done = build_session_summary(shared.wallet.address, shared.payout, before, after, accused, finished)
        if round_.sessions:
            log_session_summary(shared.journal, done, round_.sessions[0].context.money)
        return done


@contextmanager
def _open_shared_parts(
    settings: WorkerSettings, wrapper: Wrap | None, journal: Journal, signals: Signals
) -> Iterator[Shared]:
    served = frozenset[str]().union(*(feature.serves for feature in FEATURES))
    for name, words in NEED_A_FEATURE.items():
        if getattr(settings, name) != WorkerSettings.model_fields[name].default and name not in served:
            raise Refused(f"this worker is built without {words}")
    if settings.discover and settings.node is None:
        raise Refused("to discover markets, name a node of your own (--rpc)")
    own = next((rows for feature in FEATURES if (rows := feature.open_rows(settings)) is not None), None)
    with ExitStack() as stack:
        stack.enter_context(durable.lock_worker_folder(settings.data))
        # the folder's key, a new one on the first start alone. It may lie unencrypted where no node of its own is set:
        # then the worker trusts local chains only.
        check_a_key_may_be_made(settings.data)
        new = wallet.find_key_file(settings.data) is None
        plain = (
            settings.plain_key or settings.node is None or chain_id(connect_to_node(settings.node)) in LOCAL_CHAIN_IDS
        )
        key = wallet.load_or_create(settings.data, settings.secret, plain)
        first = "This is the first start: a wallet was made. " if new else ""
        backed_up = wallet.is_backed_up(settings.data)
        journal.report(
            "wallet", first + key.describe_key_file(), address=key.address, path=str(key.path), backed_up=backed_up
        )
        account_store = open_account_store(settings.data, key.address)
        account_store.save()
        wanted = runner_settings(settings), settings.device, settings.threads, settings.max_memory
        each = stack.enter_context(open_runners(*wanted))
        mine, device = each[0], ",".join(one.device for one in each)
        found = {"device": device, "threads": mine.threads, "max_memory": min(one.memory for one in each)}
        found |= {
            "leases": min(MOST_LEASES, settings.leases * len(each)),
            "unpaid": min(MOST_LEASES, settings.unpaid * len(each)),
        }
        settings = settings.model_copy(update=found)
        for one in each:
            journal.report("machine", f"{one.text} {_CHOOSE}", device=one.device, threads=one.threads, cores=one.cores)
            one.runner.on_wait = cache(partial(_report_card_wait, journal, one.device))
        if mine.warning:
            journal.report("card", mine.warning, why=mine.why)
        cards = {one.device: one.card.uuid for one in each if one.card}
        durable.record_cards(settings.data, cards)
        pauses = (feature.open_pause(settings, list(cards.values())) for feature in FEATURES)
        find_pause = next((pause for pause in pauses if pause is not None), never_paused)
        parts = settings, key, account_store, mine.runner, journal, signals, stack
        yield Shared(*parts, wrapper, own, FEATURES, find_pause, [one.runner for one in each[1:]])


def _report_card_wait(journal: Journal, device: str) -> None:
    text = f"Waits for memory of {device}, which other processes of gradmarket hold: they take turns, a step at a time."
    journal.report("card_waits", text, device=device)


def _work_until_leave(shared: Shared, round_: Scheduler) -> None:
    try:
        round_.start()
        so_far = SoFar(shared.account_store, shared.journal)
        while not shared.signals.leaving:
            round_.turn()
            if round_.sessions:
                so_far.turn(round_.sessions[0].context.money)
    except (LeaveSoon, ServiceUnreachable):
        return
    except Untrusted:
        if round_.sessions:
            _leave_markets(shared, round_)
        raise


def _leave_markets(shared: Shared, round_: Scheduler) -> None:
    shared.journal.report("leaving", "Leaving: finishing what is in flight. A second signal leaves at once.")
    round_.leave(time.monotonic() + shared.settings.leave_s)
