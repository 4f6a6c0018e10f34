"""The noise that audits by scores accept, by their own rule (market.features.loss_change): no two answers are compared.

Noise comes under a fresh identity as often as it likes and takes every place that operators may have which no whole
test has cleared; SEVERAL cleared ones are there. Every answer of theirs is scored, and judged UNDER_WAY rounds later.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from gradmarket.market.features.loss_change import (
    BLIND,
    CLEARS,
    CONVICTS,
    RUNS,
    SEVERAL,
    UNDER_WAY,
    UNSEEN,
    Admission,
    compute_score_weight,
    count_places_meanwhile,
    count_uncleared_places,
    is_waiting_pay_due,
)
from gradmarket.market.job import JobSpec
from gradmarket.trust.played_rings import SEEDS, Interval

HONEST_SHARES: Final = (0.95, 0.8, 0.6)
"""Shares of honest scores that pass; docs/results/loss_change.md has measured ones."""
MOST_ROUNDS: Final = 2000
FEW: Final = 16
"""Most answers after which a wallet leaves."""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """The forecast where this share of `honest` scores passes; counts are expected ones."""

    honest: float
    noise: Interval
    """The share of the job's answers that noise gives, at most: it takes all places that it may have."""
    until_convicted: float
    """Scores of one wallet of noise."""
    until_cleared: float
    """Scores of an honest operator, once RUNS trusted runs are there; its pay waits until then."""
    noise_paid: float
    """The share of its answers that noise is paid for at the end, if it leaves after the best number of them."""


@dataclass(frozen=True, slots=True)
class ScoredForecast:
    rounds: int
    plays: int
    rows: tuple[ScoredRow, ...]
    trusted_runs: int = RUNS
    """Before this many audits are over, no worker is convicted or cleared."""
    not_seen: str = UNSEEN

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compute_scored_forecast(spec: JobSpec) -> ScoredForecast:
    """Plays a long job with its first MOST_ROUNDS rounds only, in which early noise weighs more."""
    rounds = min(spec.rounds, MOST_ROUNDS)
    rows = list[ScoredRow]()
    for honest in HONEST_SHARES:
        passed, failed = (compute_score_weight(passes, honest) for passes in (True, False))
        row = ScoredRow(
            honest=honest,
            noise=Interval.of([play_noise(spec, rounds, honest, seed) for seed in range(SEEDS)]),
            until_convicted=CONVICTS / (BLIND * passed + (1.0 - BLIND) * failed),
            until_cleared=CLEARS / (honest * passed + (1.0 - honest) * failed),
            noise_paid=max(_compute_paid(answers, honest) for answers in range(1, FEW + 1)),
        )
        rows.append(row)
    return ScoredForecast(rounds, SEEDS, tuple(rows))


def play_noise(spec: JobSpec, rounds: int, honest: float, seed: int) -> float:
    """Returns the share of noise among the answers of `rounds` rounds, where this share of honest scores passes."""
    random, admission, lies, known = Random(seed), Admission(), 0, 0
    under_way: deque[int] = deque([0] * UNDER_WAY)
    for number in range(rounds):
        before, tasks = spec.sizes.before(number), spec.sizes.of(number)
        for _ in range(under_way.popleft()):
            known += 1
            share = honest if known > RUNS else None
            admission = admission.add(compute_score_weight(random.random() < BLIND, share), number, tasks)
        free = admission.admits(number)
        places = count_uncleared_places(tasks, SEVERAL) if free else count_places_meanwhile(before, tasks)
        under_way.append(places)
        lies += places
    return lies / spec.sizes.before(rounds)


def _compute_paid(answers: int, honest: float) -> float:
    """Returns the probability that noise is paid after this many answers, if it left before its test ended."""
    found: Mapping[int, float] = {
        passed: math.comb(answers, passed) * BLIND**passed * (1.0 - BLIND) ** (answers - passed)
        for passed in range(answers + 1)
        if is_waiting_pay_due([True] * passed + [False] * (answers - passed), honest)
    }
    return math.fsum(found.values())
