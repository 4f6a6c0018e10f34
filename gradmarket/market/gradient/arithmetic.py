"""Functions that the C library computes differently on different machines, built from additions and products alone.

With them, the learning rate of each round has the same bits on every machine.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from gradmarket.market.errors import JobRefused

TERMS: Final = 13
"""Terms of the cosine's Taylor series: the next one is under 1e-21 on [0, pi/2]."""


def half_cosine(progress: float) -> float:
    """Returns (1 + cos(pi * progress)) / 2 for progress in [0, 1], within 1e-15.

    Computed as cos^2(pi * progress / 2), whose argument stays where the Taylor series converges fast.
    """
    angle = progress * (math.pi / 2)
    square = angle * angle
    cosine = 1.0
    for term in range(TERMS - 1, 0, -1):
        cosine = 1.0 - cosine * square / ((2 * term - 1) * (2 * term))
    return cosine * cosine


SHAPES: Final[Mapping[str, Callable[[float], float]]] = {
    "constant": lambda progress: 1.0,  # noqa: ARG005
    "linear": lambda progress: 1.0 - progress,
    "cosine": half_cosine,
    "polynomial": lambda progress: (1.0 - progress) * (1.0 - progress),
}
"""The share of the full rate at progress 0 to 1 after the warm-up. The polynomial's power 2 is that of LARS's paper."""


def compute_learning_rate(schedule: str, lr: float, round_number: int, rounds: int, warmup: int = 0) -> float:
    """Returns the learning rate of a round, counted from 0.

    During `warmup` rounds it grows in equal steps, starting at lr / warmup. Then it follows the schedule: the full lr
    in the first round after the warm-up, and in the last one the schedule's value at
    (rounds - 1 - warmup) / (rounds - warmup). That is never 0, so that no round is paid for without effect. Raises
    JobRefused on an unknown schedule or a round outside the job.
    """
    if schedule not in SHAPES:
        raise JobRefused("optimizer.schedule.name", f"no {schedule[:80]!r} here: choose one of {', '.join(SHAPES)}")
    if not 0 <= round_number < rounds:
        raise JobRefused("rounds", f"{round_number} is not one of {rounds} rounds")
    if round_number < warmup:
        return lr * ((round_number + 1) / warmup)
    return lr * SHAPES[schedule]((round_number - warmup) / (rounds - warmup))
