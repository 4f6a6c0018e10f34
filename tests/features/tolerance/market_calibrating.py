"""A floor whose job compares sketches, and auditors of the classes beside its own."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from gradmarket.market.features import tolerance
from gradmarket.market.features.tolerance import Evidence
from gradmarket.market.rules.verifiers.tolerance import Allowed, Classes
from requester.features.audits.auditor_claims import Claimed
from requester.features.tolerance import calibrations
from requester.features.tolerance.calibrations import Calibration
from requester.store.tables import Job
from tests.kit.behaviour import Behaviour
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, LAYOUT, MarketFixture

NewMarket = Callable[..., MarketFixture]
GPU, TPU = "gpu", "tpu"
"""Classes beside the market fixture's own."""
NAMES = tuple(entry.name for entry in LAYOUT.entries)
TOLERANT: dict[str, Any] = {
    "rounds": 3,
    "verifier": {"name": "tolerance"},
    "replication": {"name": "fixed", "replicas": 2, "max_replicas": 2},
    "audit": {"probability": 1.0},
}


def apart(deviation: float) -> Behaviour:
    """Honest work of another class: every element is off by this share of it."""
    factor = 1.0 + deviation
    return Behaviour(lambda answer, _: {name: (value * factor).astype(np.float32) for name, value in answer.items()})


def tolerant(new_market: NewMarket, *live: str, **spec: Any) -> MarketFixture:
    """Two workers of the market fixture's class, and one of each class of `live`, which asks for no work."""
    market = new_market(**(TOLERANT | spec))
    market.worker(), market.worker()
    for name in live:
        market.worker(determinism_class=name).capacity = 0
    return market


def auditor(market: MarketFixture, name: str = GPU, deviation: float = 1e-6) -> SimAuditor:
    return SimAuditor(market, apart(deviation), determinism_class=name, name=f"the {name}")


def audited(market: MarketFixture, count: int = 1) -> None:
    """So many tasks have passed their audit."""
    market.until(lambda: len(audits_of(market)) >= count)
    SimAuditor(market).work()


def to_calibrate(market: MarketFixture, by: SimAuditor) -> Claimed:
    claimed = by.claim()
    assert claimed is not None
    assert claimed.calibrates
    return claimed


def store_runs(market: MarketFixture, runs: int, deviation: float = 1e-7, classes: Classes = (CLASS, GPU)) -> None:
    """Stores the evidence of `runs` trusted runs of the pair."""
    with market.context.begin() as work:
        family = calibrations.family_of(work.get_one(Job, market.job))
        row = calibrations.lock_calibration(work, family, classes, market.clock())
        calibrations.store_evidence(work, row, Evidence(runs, dict.fromkeys(NAMES, deviation)), market.clock())


def pairs(market: MarketFixture) -> dict[Classes, Calibration]:
    return {(row.one, row.other): row for row in market.all(Calibration)}


def allowed(market: MarketFixture, job: str = "") -> Allowed:
    with market.reading() as reader:
        return calibrations.load_thresholds(reader, reader.get_one(Job, job or market.job))


def calibrate(market: MarketFixture, *classes: str, tau: float = 1e-5) -> None:
    """As trusted runs of these classes leave it: every pair of them may deviate by `tau` in each tensor."""
    largest = {entry.name: tau / tolerance.MARGIN for entry in LAYOUT.entries}
    with market.context.begin() as work:
        family = calibrations.family_of(work.get_one(Job, market.job))
        for pair in combinations(sorted(classes), 2):
            row = calibrations.lock_calibration(work, family, pair, market.clock())
            calibrations.store_evidence(work, row, Evidence(tolerance.RUNS, largest), market.clock())
