"""Whole workers in threads of the test's process: they share its imports and its warm process of computing children."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

from pydantic import HttpUrl

from gradmarket.demo.cheat import wrap_with_cheat
from gradmarket.demo.workers import HONEST
from tests.patience import wait_for_end
from worker.journal import Journal
from worker.run import run_worker
from worker.settings import WorkerSettings
from worker.signals import Signals


@contextmanager
def run_workers(market: str, folder: Path, cast: Sequence[str], close_market: Callable[[], object]) -> Iterator[None]:
    """Runs a worker for each behaviour, honest or a cheat's of the demo, with payout keys of their own; at the end
    closes the market, so that no poll waits, and waits for them."""
    signals = [Signals() for _ in cast]
    threads = [
        Thread(target=_work, args=(market, folder / f"worker-{number}", behaviour, signal))
        for number, (behaviour, signal) in enumerate(zip(cast, signals, strict=True))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for signal in signals:
            signal.at_once = True
            signal.leave()
        close_market()
        wait_for_end(*threads)


def _work(market: str, folder: Path, behaviour: str, signals: Signals) -> None:
    settings = WorkerSettings(market=HttpUrl(market), data=folder, leases=2, device="cpu", threads=1)

    def cheat(compute: Any) -> Any:
        return wrap_with_cheat(behaviour, compute)

    run_worker(settings, None if behaviour == HONEST else cheat, Journal(stream=StringIO()), signals)
