"""How far apart honest answers lie: the thresholds of `tolerance`, from honest runs and with their evidence.

    tau = 10 * the largest deviation seen, at least 10^-6

for each tensor, pair of determinism classes and codec. With n runs, at least the share b of all honest runs lies below
the largest one seen with confidence 1 - b^n (Wilks 1941): 59 runs make that 95 % of runs at 95 %, and the factor of
ten stands above. Lies are decades away (docs/tolerance.md has the table): the least of them, a 1 % backdoor, is at
10^-2. Where honest noise would need a threshold over 5 * 10^-3, none tells one from the other, and the job is refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.errors import JobRefused
from gradmarket.market.rules.verifiers.tolerance import Classes
from gradmarket.market.terms import CalibrationState

MARGIN: Final = 10.0
LEAST: Final = 1e-6
MOST: Final = 5e-3
RUNS: Final = 59
SHARE: Final = 0.95
APART: Final = 2.0
"""No two finite tensors deviate more: opposite ones of one length."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One task computed honestly in two classes (or twice in one), both decoded from `codec`."""

    task: str
    """Runs count once a task: what a codec's rounding does to one task it does under every seed."""
    classes: Classes
    codec: str
    deviations: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a pair's thresholds rest on: so many runs, and the largest deviation of each tensor in them."""

    runs: int
    largest: Mapping[str, float]

    @property
    def confidence(self) -> float:
        """That 95 % of honest runs lie below the largest deviation seen."""
        return 1.0 - SHARE**self.runs

    @property
    def tau(self) -> dict[str, float]:
        """The threshold of each tensor; NaN where a deviation is."""
        return {name: float(np.maximum(LEAST, MARGIN * deviation)) for name, deviation in self.largest.items()}

    @property
    def state(self) -> CalibrationState:
        """Noise that no threshold bears is told at once: further runs only add to it."""
        if self.excess:
            return CalibrationState.REFUSED
        return CalibrationState.CALIBRATED if self.runs >= RUNS else CalibrationState.GATHERING

    @property
    def excess(self) -> str:
        """The tensor whose threshold would tell no lie from the truth, with that; empty where there is none."""
        over = {name: tau for name, tau in self.tau.items() if not tau <= MOST}
        return next((f"{name}: {tau:.1e}, over {MOST:.0e}" for name, tau in over.items()), "")

    def and_run(self, deviations: Mapping[str, float]) -> "Evidence":
        """With one more task, which has the same tensors. Raises JobRefused where it has others."""
        if self.runs and deviations.keys() != self.largest.keys():
            raise JobRefused("verifier", "honest runs differ in their tensors")
        within = {name: APART if np.isnan(value) else min(APART, float(value)) for name, value in deviations.items()}
        largest = {name: max(value, self.largest.get(name, 0.0)) for name, value in within.items()}
        return Evidence(self.runs + 1, largest)


def calibrate(observations: Iterable[Observation], codec: str) -> dict[Classes, Evidence]:
    """The thresholds of every pair of classes seen under `codec`.

    Raises JobRefused where a pair has too few runs, or a tensor's threshold would exceed 5 * 10^-3.
    """
    by_pair: defaultdict[Classes, list[Observation]] = defaultdict(list)
    for observation in observations:
        if observation.codec == codec:
            by_pair[observation.classes].append(observation)
    return {classes: _evidence(classes, seen) for classes, seen in sorted(by_pair.items())}


def _evidence(classes: Classes, seen: list[Observation]) -> Evidence:
    named = " and ".join(classes)
    runs = len({observation.task for observation in seen})
    if runs < RUNS:
        raise JobRefused("verifier", f"{runs} honest runs of {named}: a threshold needs {RUNS}")
    if any(observation.deviations.keys() != seen[0].deviations.keys() for observation in seen):
        raise JobRefused("verifier", f"honest runs of {named} differ in their tensors")
    largest = {name: float(np.max([each.deviations[name] for each in seen])) for name in seen[0].deviations}
    evidence = Evidence(runs, largest)
    if evidence.excess:
        raise JobRefused("verifier", f"honest runs of {named} need a threshold of {evidence.excess}")
    return evidence
