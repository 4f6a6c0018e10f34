"""Cost of a sweep of all stages that finds nothing to do, while many jobs run."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.figure import Figure
from benchmarks.size import sized
from requester.engine import stages_with
from requester.features import FEATURES
from tests.databases import new_sqlite
from tests.kit.unchained import unchained
from tests.requester.cloned_jobs import clone_job
from tests.requester.market_fixture import MarketFixture

PREFIX = "sweep"
ALWAYS = {"settle", "sweep"}
"""Stages that are ready in every sweep: they look for themselves."""
JOBS = sized(2000, 20)
SWEEPS = sized(21, 3)


def measure() -> Iterator[Figure]:
    with TemporaryDirectory() as folder:
        market = MarketFixture(Path(folder), unchained(), new_sqlite, rounds=3)
        clone_job(market, JOBS - 1)
        _sweep(market)
        taken = median(_sweep(market) for _ in range(SWEEPS))
        market.close()
    note = f"{JOBS} running jobs with a round each, on SQLite: what all stages ask, processor time, median of {SWEEPS}"
    yield Figure("sweep.idle_2k_cpu", 1000 * taken, "ms", target="<= 20", note=note)


def _sweep(market: MarketFixture) -> float:
    """Returns the seconds of processor time of one look-out."""
    began = time.process_time()
    with market.reading() as reader:
        found = {name for name, stage in stages_with(FEATURES).items() if stage.ready(reader, market.clock())}
    if found != ALWAYS:
        raise RuntimeError(f"the sweep is not idle: {found}")
    return time.process_time() - began
