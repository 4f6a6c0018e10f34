"""Colluders that spoil one task a round, or the last rounds alone, in BTARD's setting: points lost over many runs.

The default job is played against all attacks.

A run's bits depend on the processor's vector width, and its loss with them: a mean of 20 runs differs by up to half a
point between machines.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import mean
from typing import Final

import torch

from benchmarks.figure import Figure
from benchmarks.size import sized
from benchmarks.trust.attacks import ATTACKS, LATE, PATIENT
from benchmarks.trust.defences import AIMED, BESIDE, DEFENCES, OWN
from benchmarks.trust.replay import Replayed
from benchmarks.trust.run import Run, Setting
from benchmarks.trust.table import BASELINE
from benchmarks.trust.workloads import digits

PREFIX: Final = "trust.patient."
SETTING: Final = sized(Setting(tries=40), Setting(workers=6, hostile=2, start=1, tries=1))
OF_DEFAULT: Final = sized(100, 1)
"""Runs of the default job."""
MOST: Final = 0.5
"""Points that may be lost."""


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    trained = digits()
    baseline = Run(trained, DEFENCES[BASELINE], SETTING).accuracy(None)
    for defence, how in BESIDE.items():
        tries, attacks = (OF_DEFAULT, tuple(ATTACKS)) if defence == OWN else (SETTING.tries, (PATIENT, LATE))
        run = Replayed(trained, how, replace(SETTING, norm_bound=how.norm_bound, tries=tries))
        aimed = defence in AIMED
        for attack in attacks:
            run.accuracy(attack)
            lost = [baseline - reached for reached in run.accuracies[attack]]
            name = PREFIX + f"{attack}.{defence}".replace(" %", "").replace(",", "").replace(" ", "_").lower()
            note = f"worst of {len(lost)} runs {max(lost):.1f}; of {baseline:.1f}"
            yield Figure(f"{name}.mean", mean(lost), "points lost", target=f"<= {MOST}" * aimed, note=note)
            within = 100 * mean(points <= MOST for points in lost)
            note = f"at most {MOST} points lost"
            yield Figure(f"{name}.within", within, "% of runs", target=">= 95" * aimed, note=note)
