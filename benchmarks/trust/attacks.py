"""Answers of hostile workers. Each attack spoils only the gradients; loss and buffers stay honest.

They all act as one: they know the round's honest gradients and each other. LARGE is the paper's factor of 1,000.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Vector

LARGE: Final = np.float32(1000)
DELAY: Final = 8
"""Rounds."""
AGAINST: Final = np.float32(0.6)
"""The epsilon of inner product manipulation."""
JUST_PASSING: Final = 0.9
"""Of the job's norm bound."""


@dataclass(frozen=True)
class Scene:
    """The colluders' knowledge when task `task` of round `round` is to be answered: flat gradients, and the setting."""

    honest: Vector
    """Of this task."""
    round_honest: Vector
    """float32[tasks, elements]: of all tasks of the round."""
    flipped: Callable[[], Vector]
    """Of this task under false labels."""
    delayed: Callable[[], Vector]
    """Of this task at the parameters of DELAY rounds before."""
    norm_bound: float
    workers: int
    hostile: int
    round: int
    task: int


Attack = Callable[[Scene], Vector]


def sign_flip(scene: Scene) -> Vector:
    """The honest gradient times -1,000."""
    return -LARGE * scene.honest


def label_flip(scene: Scene) -> Vector:
    """Label l read as the last label less l."""
    return scene.flipped()


def constant_direction(scene: Scene) -> Vector:
    """One random direction in every task and round, 1,000 times as long as the honest gradient."""
    direction = np.random.default_rng(0).standard_normal(scene.honest.size).astype(np.float32)
    return LARGE * _as_long_as(scene.honest, direction)


def delayed_gradient(scene: Scene) -> Vector:
    """Right, but of parameters that are DELAY rounds old."""
    return scene.delayed()


def inner_product(scene: Scene) -> Vector:
    """Against the mean of the honest ones (Xie, Koyejo, Gupta 2020, "Fall of Empires", IPM)."""
    against: Vector = -AGAINST * scene.round_honest.mean(axis=0)
    return against


def little_is_enough(scene: Scene) -> Vector:
    """As many deviations off the honest mean as hide among the honest (Baruch, Baruch, Goldberg 2019, ALIE)."""
    honest = scene.workers - scene.hostile
    needed = scene.workers // 2 + 1 - scene.hostile
    deviations = np.float32(NormalDist().inv_cdf((honest - needed) / honest))
    hidden: Vector = scene.round_honest.mean(axis=0) - deviations * scene.round_honest.std(axis=0)
    return hidden


def noise(scene: Scene) -> Vector:
    """Random, as long as the honest gradient."""
    random = np.random.default_rng((scene.round, scene.task))
    return _as_long_as(scene.honest, random.standard_normal(scene.honest.size).astype(np.float32))


def silent_quorum(scene: Scene) -> Vector:
    """Sends the reverse of the honest gradient, as long as the job allows; only where the colluders hold the vote."""
    return -np.float32(JUST_PASSING * scene.norm_bound / _length(scene.honest)) * scene.honest


ATTACKS: Final[Mapping[str, Attack]] = {
    "sign flip x1000": sign_flip,
    "label flip": label_flip,
    "constant direction x1000": constant_direction,
    "delayed gradient": delayed_gradient,
    "IPM": inner_product,
    "ALIE": little_is_enough,
    "random": noise,
    "silent quorum": silent_quorum,
    "patient quorum": silent_quorum,
    "late quorum": silent_quorum,
}
PATIENT: Final = "patient quorum"
"""It spoils one task a round."""
LATE: Final = "late quorum"
"""It waits for the last LATE_ROUNDS rounds."""
LATE_ROUNDS: Final = 2
WAITING: Final = frozenset({PATIENT, LATE})
QUIET: Final = frozenset({"silent quorum", *WAITING})
"""Attacks that are tried only where colluders hold the majority of a task's replicas."""


def _length(vector: Vector) -> float:
    return max(float(np.linalg.norm(vector)), 1e-12)


def _as_long_as(model: Vector, vector: Vector) -> Vector:
    return vector * np.float32(_length(model) / _length(vector))
