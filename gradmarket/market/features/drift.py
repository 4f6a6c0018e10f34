"""Detects operators that lean: each answer passes, but together they push the model in one direction.

A single answer just under the vote's threshold cannot be told from honest noise. Two hundred of them can: honest errors
cancel, and a lean adds up. For each round r, with m the mean of an operator's answers and m' that of all others,

    d_r = m - m',    S = d_1 + ... + d_T,    Q = |d_1|^2 + ... + |d_T|^2,    lean = |S| / sqrt(Q)

For an honest operator, whose errors are as likely as their opposites, the lean is about 1. The probability that a sum
of vectors with random signs exceeds their length is bounded (Pinelis 1994, "Optimum bounds for the distributions of
martingales in Banach spaces", theorem 3.5; a space of sketches has D = 1):

    P(lean >= u) <= 2 exp(-u^2 / 2)    whatever the errors' sizes and however they change from round to round.

`compute_lean_limit` returns the u at which all rounds and all operators of a job together raise a false alarm with
probability FALSE_ALARM. An operator that raises no alarm has moved the sum of the job's updates by at most

    share * limit * sqrt(Q),    share: its part of each round's answers

which grows as the square root of the rounds, as honest noise does. A constant lean of length t in differences whose
errors have the length s is found after about limit^2 (1 + s^2 / t^2) rounds. No lean exceeds the square root of its
rounds, so none is found before `find_earliest_alarm`; `compute_unseen_push` bounds several that lean together.

The comparison uses sketches (gradient.projection) under one secret seed of the job. An operator costs 64 numbers, and
nobody can lean in a direction that the sketch misses. A lean is disclosed only when it raises the alarm. Where one of n
operators leans, the others appear to lean the other way by 1 / (n - 1) as much, so the first alarm points at the
culprit.

This does not detect: operators that contribute to all answers of a round or to none, since there is nothing to compare
them with; several operators that lean together, each within its bound; and leans in jobs whose data stays with the
workers, where honest answers differ for good reason.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.payload_layout import Layout, list_sections
from gradmarket.market.gradient.projection import sketch_tensors
from gradmarket.market.terms import Hash
from gradmarket.market.wire import SKETCH_WIDTH

FALSE_ALARM: Final = 1e-4
"""The probability that a job of honest operators ever raises an alarm."""

Line = NDArray[np.float64]


@dataclass(frozen=True)
class Contribution:
    """An accepted answer: its sketch, and the operators whose replicas agreed on it."""

    operators: frozenset[str]
    line: Line


@dataclass(frozen=True)
class Drift:
    """The sums kept of an operator: S, Q and the number of rounds that could be compared."""

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
        """Returns how far this operator's differences have moved the sum of the updates, in L2."""
        return share * float(np.linalg.norm(self.total))


def sketch_gradient(layout: Layout, shards: Iterable[tuple[int, Vector]], seed: Hash) -> Line:
    """Returns the sketch of an answer's whole gradient: float64[64], the sum over shards, each under signs of its own.

    `shards` are as `payload.decode` yields them, so memory is one shard's.
    """
    total: Line = np.zeros(SKETCH_WIDTH)
    for index, shard in shards:
        for section in list_sections(layout, index):
            if section.gradient:
                total += sketch_tensors({f"shard {index}": shard[section.part]}, seed)[f"shard {index}"]
    return total


def has_comparable_groups(groups: Iterable[frozenset[str]]) -> bool:
    """Returns whether some operator contributed to some of these answers and not to others."""
    return len(set(groups)) > 1


def compute_differences(answers: Sequence[Contribution]) -> dict[str, Line]:
    """Returns by operator the mean of its answers less the mean of the others', where there are both."""
    by_operator = {}
    for operator in sorted(frozenset().union(*(answer.operators for answer in answers))):
        own = [answer.line for answer in answers if operator in answer.operators]
        others = [answer.line for answer in answers if operator not in answer.operators]
        if others:
            by_operator[operator] = np.mean(own, axis=0) - np.mean(others, axis=0)
    return by_operator


def after_round(leans: Mapping[str, Drift], answers: Sequence[Contribution]) -> dict[str, Drift]:
    """Returns the leans of all operators after a round; an operator not in `differences` keeps its own."""
    known = dict(leans)
    for operator, difference in compute_differences(answers).items():
        known[operator] = known.get(operator, Drift(np.zeros_like(difference))).after(difference)
    return known


def compute_lean_limit(rounds: int, operators: int) -> float:
    """Returns the lean that raises the alarm after this many rounds.

    sqrt(2 ln(2 operators (pi rounds)^2 / (6 FALSE_ALARM))): the sum of all 1 / rounds^2 is pi^2 / 6, so the
    probabilities of all rounds add up to FALSE_ALARM.
    """
    return math.sqrt(2.0 * math.log(2.0 * operators * (math.pi * rounds) ** 2 / 6.0 / FALSE_ALARM))


def find_earliest_alarm(operators: int) -> int:
    """Returns the first round after which an alarm can come: there a lean without any error is over the limit."""
    rounds = 1
    while math.sqrt(rounds) <= compute_lean_limit(rounds, operators):
        rounds += 1
    return rounds


def compute_unseen_push(rounds: int, answers: int, leaning: int, operators: int) -> float:
    """Returns how far operators that lean together can push the sum of the updates of `rounds` rounds before an alarm
    is expected.

    In lengths of an honest answer's error, which a round's mean has too, by 1 / sqrt(answers). `leaning` of the answers
    of each round lean alike, by t; the differences from all others are then a = t (answers - leaning) / (answers - 1),
    with errors of e^2 = answers / (answers - 1), and the lean's square about (rounds a^2 + e^2) / (a^2 + e^2).

    Infinite where no alarm can come: all answers lean, or there are too few rounds.
    """
    if answers < 2 or leaning >= answers:
        return math.inf
    square, error = compute_lean_limit(rounds, operators) ** 2, answers / (answers - 1)
    if rounds <= square:
        return math.inf
    apart = math.sqrt(error * (square - 1.0) / (rounds - square))
    return rounds * leaning / answers * apart * (answers - 1) / (answers - leaning)


def list_leaning_operators(leans: Mapping[str, Drift]) -> list[str]:
    """Returns the operators over the limit, sorted by name."""
    return sorted(
        name for name, lean in leans.items() if lean.rounds and lean.ratio > compute_lean_limit(lean.rounds, len(leans))
    )
