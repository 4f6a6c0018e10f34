"""What an overlap of rounds saves in time: rounds of a served market whose steps take a second, in one run.

Two workers, or six at R = 3, with two leases each, two tasks a round.
"""

import os
from collections.abc import Iterator
from statistics import median

from benchmarks.figure import Figure
from benchmarks.rig.rounds import MLP_1M, Pace, measured
from benchmarks.rig.service import service

PREFIX = "overlap.round_s"
STEP_S = 1.0
COUNT = int(os.environ.get("ROUNDS", "8"))


def measure() -> Iterator[Figure]:
    for replicas in (1, 3):
        found = {}
        for delay in (0, 1):
            with service(shared=False) as here:
                pace = Pace(STEP_S, leases=2, job={"overlap": delay})
                found[delay] = sorted(measured(here, MLP_1M, replicas, COUNT, pace).seconds)
        for delay, taken in found.items():
            ratio = median(taken) / median(found[0])
            note = f"steps of {STEP_S:g} s; {taken[0]:.3g} to {taken[-1]:.3g} over {len(taken)}"
            yield Figure(f"overlap.round_s.r{replicas}.{delay}", median(taken), "s", "no overlap", ratio, note=note)
