"""A floor whose job compares sketches, and auditors of the classes beside its own."""

from collections.abc import Callable
from typing import Any

import numpy as np
from market_auditor import SimAuditor, audits_of
from market_floor import CLASS, LAYOUT, Floor
from market_workers import Behaviour

from gradmarket.market.rules.calibration import Evidence
from gradmarket.market.rules.verifiers.tolerance import Allowed, Classes
from gradmarket.requester.stages.auditors import Claimed
from gradmarket.requester.store import calibrations
from gradmarket.requester.store.tables import Calibration, Job

NewFloor = Callable[..., Floor]
GPU, TPU = "gpu", "tpu"
"""Classes beside the floor's own."""
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


def tolerant(new_floor: NewFloor, *live: str, **spec: Any) -> Floor:
    """Two workers of the floor's class, and one of each of the classes `live` that is there and asks for no work."""
    floor = new_floor(**(TOLERANT | spec))
    floor.worker(), floor.worker()
    for name in live:
        floor.worker(determinism_class=name).capacity = 0
    return floor


def auditor(floor: Floor, name: str = GPU, deviation: float = 1e-6) -> SimAuditor:
    return SimAuditor(floor, apart(deviation), determinism_class=name, name=f"the {name}")


def audited(floor: Floor, count: int = 1) -> None:
    """So many tasks have passed their audit."""
    floor.until(lambda: len(audits_of(floor)) >= count)
    SimAuditor(floor).work()


def to_calibrate(floor: Floor, by: SimAuditor) -> Claimed:
    claimed = by.claim()
    assert claimed is not None
    assert claimed.calibrates
    return claimed


def known(floor: Floor, runs: int, deviation: float = 1e-7, classes: Classes = (CLASS, GPU)) -> None:
    """As so many trusted runs of the pair leave it."""
    with floor.context.begin() as session:
        family = calibrations.family_of(session.get_one(Job, floor.job))
        row = calibrations.held(session, family, classes, floor.clock())
        calibrations.keep(session, row, Evidence(runs, dict.fromkeys(NAMES, deviation)), floor.clock())


def pairs(floor: Floor) -> dict[Classes, Calibration]:
    return {(row.one, row.other): row for row in floor.all(Calibration)}


def allowed(floor: Floor, job: str = "") -> Allowed:
    with floor.reading() as session:
        return calibrations.allowed(session, session.get_one(Job, job or floor.job))
