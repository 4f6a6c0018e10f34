"""Proposes how many inner steps a task takes and in which codec bytes travel, from the model's size, link and price.

A task fetches parameters, computes, and sends its answer. The more inner steps it takes, the less of its time goes to
the link. The fewest steps are proposed with which the link takes IDLE of it, since steps from stale parameters cost
loss; and the codec that loses least, but where a smaller one spares many steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

IDLE: Final = 0.05
"""The share of a task's time that the link may take."""
MOST_STEPS: Final = 500
"""DiLoCo's own number (Douillard et al. 2023)."""
CODECS: Final = ("fp32", "bf16", "int8", "int4", "two_bit")
"""By loss of precision, the least first."""
SPARES: Final = 0.8
"""A smaller codec is proposed where it needs at most this share of the steps."""
AVERAGED: Final = 30
"""The outer momentum averages over a thirtieth of the rounds: with more, the loss was worse (docs/training.md)."""
MOMENTA: Final = (0.3, 0.9)
"""The least that was measured, and DiLoCo's own."""


@dataclass(frozen=True, slots=True)
class HomeLink:
    """Of a worker, in Mbit/s."""

    down: float
    up: float


@dataclass(frozen=True, slots=True)
class TaskSize:
    """`step_s`: seconds of one inner step. Bytes by codec: `down` of a task's downloads, `up` of its answer."""

    step_s: float
    down: Mapping[str, int]
    up: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Proposed:
    """`link_s` and `task_s`: seconds that the link and the whole task take."""

    steps: int
    codec: str
    link_s: float
    task_s: float
    plain_steps: int
    """Inner steps with which fp32 would do, were there no limit."""

    @property
    def idle(self) -> float:
        """The share of a task's time that the link takes."""
        return self.link_s / self.task_s


def propose_step(size: TaskSize, link: HomeLink, most: int = MOST_STEPS) -> Proposed:
    """Returns steps, at most `most` of them, and codec for tasks of this size over this link."""
    # the fewest steps with which the link takes IDLE of a task's time
    needed = {codec: max(1, ceil(_link_s(size, link, codec) * (1 - IDLE) / IDLE / size.step_s)) for codec in CODECS}
    chosen = CODECS[0]
    for codec in CODECS[1:]:
        if needed[codec] <= SPARES * needed[chosen]:
            chosen = codec
    steps, link_s = min(needed[chosen], most, MOST_STEPS), _link_s(size, link, chosen)
    return Proposed(steps, chosen, link_s, link_s + steps * size.step_s, needed[CODECS[0]])


def _link_s(size: TaskSize, link: HomeLink, codec: str) -> float:
    return 8 * (size.down[codec] / link.down + size.up[codec] / link.up) / 1e6


def propose_momentum(rounds: int) -> float:
    """Returns the outer momentum for `rounds` rounds: it averages over about 1 / (1 - momentum) of them."""
    least, most = MOMENTA
    return min(most, max(least, round(1.0 - AVERAGED / rounds, 2)))
