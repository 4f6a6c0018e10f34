"""The share of a worker's time that 100 inner steps of a GPT of 10.8 million parameters take, at 110/500 Mbit/s.

An inner step is measured here, in one thread; workers sleep a hundred times as long. Two bits an element go either way,
R = 1, and two workers share the link. `ahead`: rounds overlap and a worker holds two leases, so that it fetches and
uploads while it computes.
"""

import os
import random
from collections.abc import Iterator
from typing import Final

from benchmarks.figure import Figure
from benchmarks.rig.child import cpu_s, drop, task
from benchmarks.rig.link import Link, Relay, relayed, seldom
from benchmarks.rig.rounds import GPT_10M, Pace, measured
from benchmarks.rig.service import service
from benchmarks.size import sized
from gradmarket.market.step import InnerOptimizer, LocalStep
from gradmarket.runner import Runner, RunnerSettings

PREFIX = "wan.utilisation.gpt10m"
LINK = Link(110, 500)
ROWS, STEPS, TRIED = sized((8, 100, 4), (1, 2, 1))
COUNT = int(os.environ.get("WAN_ROUNDS", sized("3", "1")))
CASES: Final = (("", 1, 0), (".ahead", 2, 1))
CODES = {"uplink": {"codec": "two_bit"}, "downlink": {"codec": "two_bit"}}


def measure() -> Iterator[Figure]:
    seconds = STEPS * inner_step_s()
    for name, leases, overlap in sized(CASES, CASES[1:]):
        relay = Relay(LINK, seldom(random.Random(0), 1 << 22))
        with relayed(relay), service(shared=False, settings={"GRADMARKET_URL": relay.url}) as here:
            pace = Pace(seconds, leases, warm=1 + 3 * overlap, job=CODES | {"overlap": overlap})
            taken = measured(here, GPT_10M, 1, COUNT, pace).seconds
        rounds = ", ".join(f"{one:.1f}" for one in taken)
        note = f"{STEPS} inner steps of {ROWS} rows take {seconds:.1f} s; rounds of {rounds} s"
        yield Figure(PREFIX + name, COUNT * seconds / sum(taken), "", target=">= 0.95", note=note)


def inner_step_s() -> float:
    """CPU seconds of an inner step of AdamW in the runner's child."""
    step = LocalStep(kind="local", steps=TRIED, rows=ROWS, optimizer=InnerOptimizer(name="adamw", lr=3e-4))
    with Runner(RunnerSettings(seconds=600.0)) as runner:
        tried = task(runner, GPT_10M.arguments, GPT_10M.shape[0], GPT_10M.classes, step)
        tried.whole(drop)  # the child's first pass loads its kernels
        return cpu_s(runner, lambda: tried.whole(drop)) / TRIED
