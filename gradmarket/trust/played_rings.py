"""Plays a job against patient, late, quick and flooding rings: the tasks that each leaves wrong, with 95 % intervals.

The market is gradmarket.trust.free_identities; a ring holds a share of those present, all of it proven at the start.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Final

from gradmarket.market.job import JobSpec
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import Plan
from gradmarket.trust.free_identities import ADVERSARIES, RingMarket, Rules, play, play_majority

SEEDS: Final = 10
STUDENT: Final = {2: 12.706, 10: 2.262, 30: 2.045}
"""Student's t for 95 %, by the number of plays."""
WORKERS: Final = 60
"""Workers of a market whose size is not given."""
MOST_TASKS, MOST_PLAYED = 16, 800
"""Tasks of a played round, and of a whole play, at most."""
LEAST_ROUNDS: Final = 25
"""Rounds of a play at least, where the job has as many: a late ring waits for the last twenty."""
RINGS: Final[Mapping[str, str]] = {
    "quorum": "lies where it is most of a task",
    "unanimous": "lies where it is all of a task, at an honest pace",
    "instant_unanimous": "the same, answering at once",
    "patient": "the same once a round",
    "late": "the same in the last 20 rounds",
    "late_two": "the same in the last 2 rounds",
    "flood": "the same, and a flood of 10 a worker",
}
"""Behaviour of the rings of gradmarket.trust.free_identities, in words."""
AT_ANY_PACE: Final = {"instant_unanimous": "unanimous"}
"""Where a worker's next seat waits for the pace of honest ones, the first is played as the second."""


@dataclass(frozen=True, slots=True)
class Interval:
    mean: float
    half: float
    """Half of the interval."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        return cls(mean(values), STUDENT[len(values)] * stdev(values) / math.sqrt(len(values)))

    @property
    def most(self) -> float:
        return self.mean + self.half

    @property
    def least(self) -> float:
        return self.mean - self.half


@dataclass(frozen=True, slots=True)
class PlayedRing:
    """A kind of ring; the shares of tasks that it leaves wrong, one for each share of colluders."""

    ring: str
    wrong: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class PlayedRings:
    """The market that was played `plays` times for each figure, and the results."""

    workers: int
    tasks: int
    rounds: int
    plays: int
    rings: tuple[PlayedRing, ...]


def play_rings(spec: JobSpec, plan: Plan, shares: Sequence[float], workers: int | None) -> PlayedRings | None:
    """Returns None for plans that are not played: one replica, or a plain vote with audits.

    A long or wide job is played with fewer rounds or tasks, in which a ring's initial standing weighs more than in the
    job.
    """
    voted = not spec.proof
    if plan.first_wave < 2 or (voted and plan.audit) or not (voted or plan.audit):
        return None
    tasks = min(spec.tasks_per_round, MOST_TASKS)
    market = RingMarket(workers or WORKERS, tasks, min(spec.rounds, max(LEAST_ROUNDS, MOST_PLAYED // tasks)))
    if market.workers < 2 * plan.first_wave:
        return None
    rules = Rules(plan.first_wave, plan.audit, spec.proof or proven.PROOF, window=spec.final_after - spec.overlap)

    def play_wrong(ring: str, share: float) -> Interval:
        how = ADVERSARIES[ring]
        outcomes = (
            play_majority(market, share, how, seed, plan) if voted else play(market, share, how, rules, seed)
            for seed in range(SEEDS)
        )
        return Interval.of([outcome.wrong_share for outcome in outcomes])

    played = RINGS if voted else RINGS.keys() - AT_ANY_PACE.keys()
    wrong = {ring: tuple(play_wrong(ring, share) for share in shares) for ring in played}
    rings = tuple(PlayedRing(ring, wrong[ring if ring in wrong else AT_ANY_PACE[ring]]) for ring in RINGS)
    return PlayedRings(market.workers, market.tasks, market.rounds, SEEDS, rings)
