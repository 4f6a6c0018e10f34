"""Local steps in two bits against stronger baselines than data-parallel training in fp32, by bytes to the same loss.

Computed from the measured curves of `make bench ONLY=bytes`, not trained: each baseline has the bytes of its codec, and
the loss that data-parallel training in fp32 ends with, as if its codec cost none. The worst of the seeds.

    bf16      both ways, two bytes an element up and down
    two_bit   both ways, as ours, and a round every step: what is left is what local steps are worth
    ring      in bf16: each of as many workers as tasks sends and receives 2 (n - 1) / n of the gradient a step,
              and nobody computes twice, where here three replicas of each task fetch the parameters
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from benchmarks.figure import Figure
from benchmarks.rig import byte_pictures
from benchmarks.rig.kept_curves import TASKS, Curve, curves

PREFIX = "bytes_baseline."
LOSS_BYTES: Final = 4
"""Of an answer's loss, which is not packed."""


def measure() -> Iterator[Figure]:
    found = curves(byte_pictures.RESULT)
    pairs = [
        (plain, ours)
        for plain in found
        for ours in found
        if (plain.name, ours.name) == ("data_parallel", "ours") and plain.seed == ours.seed
    ]
    for name, in_bytes in BASELINES.items():
        ratios = [in_bytes(plain, ours) / _until(ours, plain.final) for plain, ours in pairs]
        seeds = ", ".join(f"{ratio:.1f}" for ratio in ratios)
        note = f"computed from the curves of `bytes`; seeds: {seeds}"
        yield Figure(f"bytes_baseline.{name}", min(ratios), "times", "data-parallel", min(ratios), note=note)


def _until(ours: Curve, loss: float) -> float:
    rounds = ours.reached(loss)
    return ours.total(rounds) if rounds else float("inf")


def _bf16(plain: Curve, _ours: Curve) -> float:
    up, down = (plain.up - LOSS_BYTES) // 2 + LOSS_BYTES, plain.down // 2
    return replace(plain, up=up, down=down).total(plain.rounds)


def _two_bit(plain: Curve, ours: Curve) -> float:
    return replace(plain, up=ours.up, down=ours.down).total(plain.rounds)


def _ring(plain: Curve, _ours: Curve) -> float:
    """Sent and received, of all workers."""
    return plain.rounds * TASKS * 2 * (2 * (TASKS - 1) / TASKS) * (plain.first / 2)


BASELINES: Final[Mapping[str, Callable[[Curve, Curve], float]]] = {"bf16": _bf16, "two_bit": _two_bit, "ring": _ring}
