"""CPU time of a secure sum of 1,000 vectors of a million parameters.

A tenth of the holders may collude and a third drop out: our graph has 256 places for neighbours then. Flower's SecAgg+
leaves their number to its user, and the secure aggregation example takes 3 shares of which 2 are enough: it is measured
so, and with as many neighbours as ours. All of ours' checks are in the time: signatures of keys, vectors and survivors.
"""

import time
from collections.abc import Iterator
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rig.peers import SECURE_SUM
from benchmarks.rig.secure_sum import LoneHolder, Others, play
from benchmarks.size import sized
from gradmarket.market.features.secure_sums.masks import add_masks

PREFIX = "private.secagg"
HOLDERS, SIZE, CORRUPT, DROPPED, RUNS = sized((1000, 1_000_000, 100, 333, 3), (10, 100, 1, 3, 1))
STEPS = ("keys", "shares", "mask", "sign", "unmask")


def measure() -> Iterator[Figure]:
    made = play(HOLDERS, SIZE, CORRUPT, DROPPED)
    plan = made.aggregation.plan
    others = Others(made)
    runs = [LoneHolder(others) for _ in range(RUNS)]
    for one in runs:
        one.run()
    own = median(1e3 * sum(one.cpu_s) for one in runs)
    parts = ", ".join(f"{name} {1e3 * median(one.cpu_s[at] for one in runs):.0f}" for at, name in enumerate(STEPS))
    neighbours = len(made.aggregation.points[0])
    note = f"{neighbours} neighbours, threshold {plan.threshold}; ms by step: {parts}"
    alike, small = flower(neighbours + 1, plan.threshold, 1), flower(3, 2, RUNS)
    yield figure("cpu_ms", own, "ms", "Flower's SecAgg+ with 2 neighbours, as its example", small, note, most=2)
    note = f"{neighbours} neighbours and threshold {plan.threshold} on either side"
    yield figure("cpu_ms.alike", own, "ms", "Flower's SecAgg+ with as many neighbours", alike, note, most=2)
    sent, received = sum(runs[0].sent) / 1e6, sum(runs[0].received) / 1e6
    yield figure("sent_mb", sent, "MB", "the vector in the clear", 4 * SIZE / 1e6, "as JSON, and the vector as bytes")
    yield figure("received_mb", received, "MB", "", None, f"{plan.quorum} signatures and {neighbours} neighbours'")
    mask = mask_ms()
    yield figure("mask_ms", mask, "ms", "", None, "the requester takes one off for each survivor")
    note = "for each holder that drops out between step 2 and step 3"
    yield figure("lost_ms", mask * neighbours, "ms", "", None, note)


def figure(
    name: str, value: float, unit: str, peer: str, other: float | None, note: str, most: float | None = None
) -> Figure:
    """`other` is the peer's value, None where the peer is absent; the target is at most `most` times as much."""
    ratio = value / other if other else None
    target = f"<= {most * other:.4g}" if other and most else ""
    return Figure(f"{PREFIX}.{name}", value, unit, peer if other else "", ratio, target, note)


def flower(shares: int, threshold: int, runs: int) -> float | None:
    """Returns the CPU milliseconds of one of Flower's clients, the median of some runs."""
    if not SECURE_SUM.installed:
        return None
    return 1e3 * median(SECURE_SUM.read_seconds(SIZE, HOLDERS, shares, threshold, runs))


def mask_ms() -> float:
    """Returns the CPU milliseconds of one mask, of 32 added side by side."""
    vector, keys = np.zeros(SIZE, np.uint32), [bytes([number]) * 32 for number in range(32)]
    start = time.process_time()
    add_masks(vector, keys, [])
    return 1e3 * (time.process_time() - start) / len(keys)
