"""Time that an overlap of rounds saves: rounds of a served market whose steps take a second, in one run.

Two workers, or six at R = 3, with two leases each, two tasks a round.
"""

import os
from collections.abc import Iterator
from statistics import median

from benchmarks.figure import Figure
from benchmarks.rig.rounds import GPT_10M, MLP_1M, Pace, measured
from benchmarks.rig.service import service
from benchmarks.size import sized

PREFIX = "overlap.round_s"
STEP_S = sized(1.0, 0.05)
COUNT = int(os.environ.get("ROUNDS", sized("8", "1")))
CASES = (
    ("r1", MLP_1M, 1, 0.04),
    ("r3", MLP_1M, 3, 0.06),
    ("gpt10m.r1", GPT_10M, 1, 0.20),
    ("gpt10m.r3", GPT_10M, 3, 0.25),
)
"""Name, model, replicas, and the seconds that a round of an overlap is to take beyond its step."""


def measure() -> Iterator[Figure]:
    for name, model, replicas, beyond in sized(CASES, CASES[:1]):
        found = {}
        for delay in sized((0, 1), (1,)):
            with service(shared=False) as here:
                pace = Pace(STEP_S, leases=2, job={"overlap": delay})
                found[delay] = sorted(measured(here, model, replicas, COUNT, pace).seconds)
        for delay, taken in found.items():
            ratio, limit = median(taken) / median(found[min(found)]), f"<= {STEP_S + beyond:g}" if delay else ""
            note = f"steps of {STEP_S:g} s; {taken[0]:.3g} to {taken[-1]:.3g} over {len(taken)}"
            yield Figure(f"{PREFIX}.{name}.{delay}", median(taken), "s", "no overlap", ratio, limit, note)
