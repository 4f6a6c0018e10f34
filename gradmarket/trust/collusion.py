"""Computes exactly how often workers that act as one decide a task, which votes alone cannot detect.

Colluders give one wrong answer, and honest workers give the right one. The replicas of a task are drawn from the
market, so a first wave holds k colluders with the hypergeometric probability (binomial where the market is large).
Further waves follow the rule of rules.voting. With R = 3 colluders hold the majority with 3 f^2 (1 - f) + f^3: 2.8 % of
tasks at f = 10 %.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import comb

from gradmarket.market.rules import voting
from gradmarket.market.terms import Plan, ReplicaId

ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class ColludingPool:
    """The market that replicas are drawn from: `colluding` of `workers`, or that share of an infinite market."""

    colluding: Fraction
    workers: int | None = None

    def draw(self, honest: int, colluding: int, count: int) -> list[Fraction]:
        """Returns the probabilities that 0, 1, ... `count` of `count` further workers collude.

        `honest` and `colluding` workers have been drawn already. Empty where too few workers are left.
        """
        if self.workers is None:
            f = self.colluding
            return [comb(count, k) * f**k * (1 - f) ** (count - k) for k in range(count + 1)]
        bad = round(self.colluding * self.workers) - colluding
        left = self.workers - honest - colluding
        if count > left:
            return []
        return [Fraction(comb(bad, k) * comb(left - bad, count - k), comb(left, count)) for k in range(count + 1)]


@dataclass(frozen=True, slots=True)
class Odds:
    """The outcome probabilities of one attempt at a task."""

    right: Fraction
    wrong: Fraction
    replicas: Fraction
    """The expected number of replicas."""

    @property
    def undecided(self) -> Fraction:
        return 1 - self.right - self.wrong

    @property
    def wrongly_accepted(self) -> Fraction:
        """The probability of a wrong answer for a task that is tried until it is decided."""
        decided = self.right + self.wrong
        return self.wrong / decided if decided else ZERO


def compute_odds(plan: Plan, pool: ColludingPool) -> Odds:
    """Returns the outcome probabilities where colluders always give their wrong answer."""

    @cache
    def after(honest: int, colluding: int, wave: int) -> Odds:
        total = Odds(ZERO, ZERO, Fraction(wave))
        for more, chance in enumerate(pool.draw(honest, colluding, wave)):
            if chance:
                part = judged(honest + wave - more, colluding + more)
                total = Odds(
                    total.right + chance * part.right,
                    total.wrong + chance * part.wrong,
                    total.replicas + chance * part.replicas,
                )
        return total

    def judged(honest: int, colluding: int) -> Odds:
        # the largest first; of equal groups the colluders' is first, and neither can win a tie
        sides = [frozenset(ReplicaId(f"{kind}{i}") for i in range(n)) for kind, n in (("c", colluding), ("h", honest))]
        groups = sorted(filter(None, sides), key=len, reverse=True)
        verdict = voting.judge_ballots(groups, honest + colluding, plan)
        if isinstance(verdict, voting.Quorum):
            wrong = Fraction(next(iter(verdict.agreeing)).startswith("c"))
            return Odds(1 - wrong, wrong, ZERO)
        if isinstance(verdict, voting.Another):
            return after(honest, colluding, verdict.wave)
        if isinstance(verdict, voting.Referral):  # an audit accepts the honest answer, if there is one
            return Odds(Fraction(honest > 0), ZERO, ZERO)
        return Odds(ZERO, ZERO, ZERO)

    return after(0, 0, plan.first_wave)


def compute_silent_share(plan: Plan, pool: ColludingPool) -> Fraction:
    """Returns how often colluders hold the whole decision after the first wave: where a lie of theirs cannot fail."""
    chances = pool.draw(0, 0, plan.first_wave)
    return sum((chance for k, chance in enumerate(chances) if plan.decides(plan.first_wave, k)), ZERO)


def compute_sharing_pay(plan: Plan, pool: ColludingPool) -> Fraction | None:
    """Returns a ring's pay in prices for each gradient that it computes, where it is honest and shares.

    It computes once for all of its seats in a task: R f / (1 - (1 - f)^R) in a large market, 1.37 for 30 % of three. No
    vote, audit or clock sees it. None where the ring never has a seat.
    """
    chances = pool.draw(0, 0, plan.first_wave)
    return _divide_seats(chances, sum(chances[1:], ZERO))


def compute_lying_pay(plan: Plan, pool: ColludingPool) -> Fraction | None:
    """Returns the same where it computes only in tasks that it does not decide, and nobody takes its pay back.

    That holds where identities are free: a barred member comes back under a fresh one. None where it computes nothing.
    """
    chances = pool.draw(0, 0, plan.first_wave)
    computed = (chance for k, chance in enumerate(chances) if k and not plan.decides(plan.first_wave, k))
    return _divide_seats(chances, sum(computed, ZERO))


def _divide_seats(chances: list[Fraction], computed: Fraction) -> Fraction | None:
    seats = sum((k * chance for k, chance in enumerate(chances)), ZERO)
    return seats / computed if computed else None


def over_a_job(wrong: Fraction, tasks: int) -> float:
    """Returns the probability that at least one of `tasks` is accepted wrongly: 1 - (1 - wrong)^tasks."""
    return 1.0 if wrong == 1 else -math.expm1(tasks * math.log1p(-float(wrong)))
