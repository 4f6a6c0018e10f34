"""Whether an operator leans: answers that each pass, and together push the model one way.

A single answer just under what the vote tolerates cannot be told from honest noise. Two hundred of them can, since
honest errors wander and a lean adds up. For each round r, with m the mean of an operator's answers and m' that of all
others,

    d_r = m - m',    S = d_1 + ... + d_T,    Q = |d_1|^2 + ... + |d_T|^2,    lean = |S| / sqrt(Q)

For an honest operator, whose errors are as likely as their opposites, lean is about 1, and since a sign that changes
moves |S| by at most 2 |d_r| (McDiarmid 1989, "On the method of bounded differences"; E |S| <= sqrt(Q) by Jensen)

    P(lean >= 1 + u) <= exp(-u^2 / 2)    whatever the errors' sizes and however they change from round to round.

`limit` takes the u at which all rounds of a job and all its operators together give a false alarm with the chance
FALSE_ALARM. What this bounds: who raises no alarm has moved the sum of the job's updates by at most

    share * limit * sqrt(Q),    share: its part of each round's answers

which grows as the square root of the rounds, as honest noise does. A constant lean of length t in differences whose
errors have the length s is found after about limit^2 (1 + s^2 / t^2) rounds.

What is compared are sketches (`rules.sketch`) under one secret seed of the job, so an operator costs 64 numbers, and
nobody can lean where the sketch does not look; nor is a lean told before it raises the alarm. Where one of n operators
leans, the others lean away from it by 1 / (n - 1) as much: who raises the alarm first is the one to look at.

What this does not see: operators that have a part in all answers of a round or in none, for there is nothing to compare
them with; several operators that lean together, each within its bound; and jobs whose data stays with the workers,
where honest answers lean by right.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.inspection import sections
from gradmarket.market.gradient.payload import Layout
from gradmarket.market.rules.projection import WIDTH, sketch
from gradmarket.market.terms import Hash

FALSE_ALARM: Final = 1e-6
"""The chance that a job of honest operators ever raises an alarm."""

Line = NDArray[np.float64]


@dataclass(frozen=True)
class Contribution:
    """An accepted answer: its sketch, and the operators whose replicas agreed on it."""

    operators: frozenset[str]
    line: Line


@dataclass(frozen=True)
class Drift:
    """What is kept of an operator: S, Q and the rounds that had something to compare."""

    total: Line
    squares: float = 0.0
    rounds: int = 0

    @property
    def ratio(self) -> float:
        """|S| / sqrt(Q); 0 before anything differed."""
        return float(np.linalg.norm(self.total)) / math.sqrt(self.squares) if self.squares else 0.0

    def after(self, difference: Line) -> "Drift":
        return Drift(self.total + difference, self.squares + float(np.square(difference).sum()), self.rounds + 1)

    def moved(self, share: float) -> float:
        """How far the sum of the updates is from what it would be without this operator's differences, L2."""
        return share * float(np.linalg.norm(self.total))


def line(layout: Layout, shards: Iterable[tuple[int, Vector]], seed: Hash) -> Line:
    """The sketch of an answer's whole gradient: float64[64], the sum of its shards', each under signs of its own.

    shards: as `payload.decode` yields them, so memory is a shard's.
    """
    total: Line = np.zeros(WIDTH)
    for index, shard in shards:
        for section in sections(layout, index):
            if section.gradient:
                total += sketch({f"shard {index}": shard[section.part]}, seed)[f"shard {index}"]
    return total


def comparable(groups: Iterable[frozenset[str]]) -> bool:
    """Whether an operator has a part in some of these answers and not in others."""
    return len(set(groups)) > 1


def differences(answers: Sequence[Contribution]) -> dict[str, Line]:
    """By operator, the mean of its answers less the mean of the others', where there are both."""
    found = {}
    for operator in sorted(frozenset().union(*(answer.operators for answer in answers))):
        own = [answer.line for answer in answers if operator in answer.operators]
        others = [answer.line for answer in answers if operator not in answer.operators]
        if others:
            found[operator] = np.mean(own, axis=0) - np.mean(others, axis=0)
    return found


def after_round(leans: Mapping[str, Drift], answers: Sequence[Contribution]) -> dict[str, Drift]:
    """The leans of all operators after a round; who had no part in it stays as it was."""
    known = dict(leans)
    for operator, difference in differences(answers).items():
        known[operator] = known.get(operator, Drift(np.zeros_like(difference))).after(difference)
    return known


def limit(rounds: int, operators: int) -> float:
    """The lean that raises the alarm after so many rounds.

    1 + sqrt(2 ln(operators (pi rounds)^2 / (6 FALSE_ALARM))): since the sum of all 1 / rounds^2 is pi^2 / 6, the
    chances of all rounds together come to FALSE_ALARM.
    """
    return 1.0 + math.sqrt(2.0 * math.log(operators * (math.pi * rounds) ** 2 / 6.0 / FALSE_ALARM))


def leaning(leans: Mapping[str, Drift]) -> list[str]:
    """The operators over the limit, sorted by name."""
    return sorted(name for name, lean in leans.items() if lean.rounds and lean.ratio > limit(lean.rounds, len(leans)))
