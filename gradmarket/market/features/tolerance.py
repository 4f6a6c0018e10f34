"""Tolerance: thresholds within which answers of different classes agree, from tasks that were computed twice.

    tau = 10 * the largest deviation seen, at least 10^-6

One per tensor, pair of determinism classes and codec. After n runs, at least the share b of all honest
runs lies below the largest deviation seen, with confidence 1 - b^n (Wilks 1941): 59 runs give 95 % of runs at 95 %. The
factor of ten comes on top. Lies deviate far more (docs/results/tolerance.md): the least of them, a 1 % backdoor,
by 10^-2. Where honest noise would need a threshold over 5 * 10^-3, no threshold separates them: the job is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job_fields import JobFields
from gradmarket.market.terms import CalibrationState
from gradmarket.market.wire import SKETCH_TENSORS


def find_sketch_fault(spec: JobFields) -> str:
    """Returns why this job cannot compare answers by sketches, the field first; empty where it can, or does not."""
    if not spec.verifier.sketched:
        return ""
    if not spec.audited:
        why = 'takes its thresholds from audited tasks: set audit, such as {"probability": 0.1}'
    elif not spec.replication.replicas == spec.replication.max_replicas >= 2:
        why = "has one wave: set replication.replicas and max_replicas alike, to 2 or more"
    else:
        return ""
    return f"verifier: {spec.verifier.name} {why}"


def check_tensor_count(layout: Layout) -> None:
    """Raises JobRefused where answers have too many tensors for a reveal."""
    tensors = len(layout.entries)
    if tensors > SKETCH_TENSORS:
        most = f"{tensors} tensors, and a sketch has {SKETCH_TENSORS} at most: take the verifier exact"
        raise JobRefused("verifier", f"an answer has {most}")


MARGIN: Final = 10.0
LEAST: Final = 1e-6
MOST: Final = 5e-3
RUNS: Final = 59
SHARE: Final = 0.95
APART: Final = 2.0
"""The largest deviation of two finite tensors: that of opposite ones of equal length."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for a pair's thresholds: the number of runs, and the largest deviation of each tensor in them."""

    runs: int
    largest: Mapping[str, float]

    @property
    def confidence(self) -> float:
        """The confidence that 95 % of honest runs lie below the largest deviation seen."""
        return 1.0 - SHARE**self.runs

    @property
    def tau(self) -> dict[str, float]:
        """The threshold of each tensor; NaN where its deviation is NaN."""
        return {name: float(np.maximum(LEAST, MARGIN * deviation)) for name, deviation in self.largest.items()}

    @property
    def state(self) -> CalibrationState:
        """The state of the calibration. Excessive noise is refused at once: further runs only add to it."""
        if self.excess:
            return CalibrationState.REFUSED
        return CalibrationState.CALIBRATED if self.runs >= RUNS else CalibrationState.GATHERING

    @property
    def excess(self) -> str:
        """The first tensor whose threshold is too large to detect lies, with that threshold; empty if none is."""
        over = {name: tau for name, tau in self.tau.items() if not tau <= MOST}
        return next((f"{name}: {tau:.1e}, over {MOST:.0e}" for name, tau in over.items()), "")

    def and_run(self, deviations: Mapping[str, float]) -> "Evidence":
        """Returns the evidence after one more task. Raises JobRefused where it has other tensors."""
        if self.runs and deviations.keys() != self.largest.keys():
            raise JobRefused("verifier", "honest runs differ in their tensors")
        within = {name: APART if np.isnan(value) else min(APART, float(value)) for name, value in deviations.items()}
        largest = {name: max(value, self.largest.get(name, 0.0)) for name, value in within.items()}
        return Evidence(self.runs + 1, largest)
