"""Tests over many scores whether an operator's gradients come from its rows, where answers never agree bit by bit.

    change(rows) = loss(rows, x) - loss(rows, x - h g / |g|),    h = 10^-3 |x|
    passes  <=>  change(own) > change(other) for each of 3 other draws of as many rows

x are the parameters and g is the accepted gradient. A gradient computed from a task's rows lowers the loss on them more
than on other rows, provided that those are drawn after the answer (Lidin et al. 2025, arXiv 2505.21684, weigh peers
this way). This holds even if two machines differ in every bit.

A single score errs often, so a sequential test (Wald 1945) decides over all scores of an operator. With p0 the share of
honest gradients that pass:

    weight = log(1/4 / p0) where it passes, log(3/4 / (1 - p0)) where it does not
    convicted:  sum >= log((1 - BETA) / ALPHA)        honest:  sum <= log(BETA / (1 - ALPHA)), and it starts anew

The 1/4 needs no calibration: for a gradient that does not depend on the task's rows the four draws are exchangeable, so
its own one is the largest once in four. p0 is the 95 % lower bound (Clopper and Pearson 1934) from trusted runs: the
auditor's own gradients of audited tasks of the same job, the newest WINDOW of them. With fewer than RUNS of them, or p0
below LEAST, scores have no weight and nobody is convicted.

The test detects noise, zeros, a flipped sign and gradients of other rows. It does not detect gradients that do follow
the task's rows: scaled ones, those of older parameters, those of a part of the rows, a backdoor in a few of them.
docs/results/loss_change.md has the rates.

A wallet that leaves before its test ends is never convicted. So the scores of all operators that no whole test has
cleared are summed too, in the order of judgement, as if one had given them (Page 1954): sum = max(0, sum + weight).
Where that reaches the bound of a conviction, the others get one task in 1 / RISK for PAUSE rounds, twice as many after
each further time, and nobody is blamed: honest ones alone come to that once in 1 / ALPHA scores at most. A turn of
noise under any number of wallets has log(0.99 / ALPHA) / log(3/4 / (1 - p0)) lies, TURN of them at p0 = 0.9, and the
lies under way, a quarter of the places of UNDER_WAY rounds. The pause ends where these are RISK of its tasks: so noise
is at most RISK of a long job's answers in its turns and RISK between them, 1 % together, and keeps no newcomer out.

An operator that no whole test has cleared waits for its pay: its answers count, and are paid once its test clears it,
or at the job's end unless its scores together make noise likelier than honesty (is_waiting_pay_due). A convicted
operator is paid nothing. So noise is paid for a quarter of its answers at most (7/16 at p0 <= 3/4), and not before the
end. An answer that diverged has no score: its pay is dropped where another's to the same task did not diverge.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Arrays, Tensors
from gradmarket.market.gradient.norm import compute_norm
from gradmarket.market.job_fields import JobFields
from gradmarket.market.rules import replication
from gradmarket.market.terms import DOUBT, ChangeVerdict, Hash, domain_hash
from gradmarket.market.wire.audit_messages import LARGEST_FALL, OTHER_DRAWS
from graphdoc import plugins

BLIND: Final = 1.0 / (1 + OTHER_DRAWS)
"""The probability that a gradient passes that does not depend on the task's rows."""
RUNS: Final = 30
"""Trusted runs needed before scores have any weight."""
WINDOW: Final = 100
"""Trusted runs that count, newest first: the share of honest gradients that pass changes as a model learns."""
LEAST: Final = 0.5
"""The least share of honest gradients that must pass for a score to have any weight."""
ALPHA: Final = 1e-4
"""The probability that one whole test convicts an honest operator, if p0 holds."""
BETA: Final = 0.01
"""The probability that one whole test clears an operator whose gradients ignore the rows."""
CONVICTS: Final = math.log((1.0 - BETA) / ALPHA)
CLEARS: Final = math.log(BETA / (1.0 - ALPHA))
SEVERAL: Final = 3
"""The number of cleared operators from which on the others get a smaller part of the places."""
FEW_CLEARED, SEVERAL_CLEARED = 2, 4
"""One place in this many goes to the others: with few cleared operators, and with SEVERAL."""
PAUSE: Final = 2
"""Rounds in which newcomers have few places, after the first time that their scores together are those of noise."""
RISK: Final = 1 / 200
"""The share of tasks that newcomers get meanwhile, and the most of all tasks that lies of their turns take."""
TURN: Final = 8
"""The number of lies of noise until its scores convict."""
UNDER_WAY: Final = 3
"""The number of rounds whose answers are not judged yet at the conviction."""
UNSEEN: Final = "answers of older parameters, of fewer rows, of another length, with a backdoor in a few rows"
"""The answers that pass the test, since they follow the task's rows."""
_HALVINGS: Final = 40


@dataclass(frozen=True, slots=True)
class Change:
    """By how much the loss fell on the task's own rows, and on each other draw."""

    own: float
    others: tuple[float, ...]

    @property
    def passes(self) -> bool:
        return self.own > max(self.others)

    @property
    def score(self) -> float:
        """Returns (own - largest other) / (|own| + |largest other|), from -1 to 1.

        Over 0 where it passes; 0 where both are 0.
        """
        other = max(self.others)
        scale = abs(self.own) + abs(other)
        return (self.own - other) / scale if scale else 0.0


def count_uncleared_places(places: int, cleared: int) -> int:
    """Returns how many of a round's places operators may have that no whole test has cleared in the job.

    Half of them while fewer than SEVERAL separate cleared operators are there, then a quarter. Noise that changes its
    wallet before its test ends is never convicted, but it spoils no more of a round than this.
    """
    return max(1, places // (FEW_CLEARED if cleared < SEVERAL else SEVERAL_CLEARED))


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a job freely admits operators that no whole test has cleared; `closings`: how often it ceased to."""

    total: float = 0.0
    """The sum of their scores since they were admitted last."""
    closings: int = 0
    until: int = 0
    """The first round that admits them freely again."""

    def add(self, weight: float, number: int, tasks: int) -> "Admission":
        """Returns the state after a further score of theirs, judged while round `number`, of `tasks`, is the newest.

        While it admits none, answers that were under way before no longer count.
        """
        if not self.admits(number):
            return self
        total = max(0.0, self.total + weight)
        if total < CONVICTS:
            return Admission(total, self.closings, self.until)
        # the rounds of `tasks` tasks in which the lies of a turn are a share of RISK
        longest = math.ceil((TURN / tasks + UNDER_WAY / SEVERAL_CLEARED) / RISK)
        pause = min(PAUSE * 2 ** min(self.closings, 32), max(PAUSE, longest))
        return Admission(0.0, self.closings + 1, number + 1 + pause)

    def admits(self, number: int) -> bool:
        return number >= self.until


def count_places_meanwhile(before: int, tasks: int) -> int:
    """Returns how many of a round's `tasks` uncleared operators get while their scores together are those of noise.

    `before` tasks were of earlier rounds.
    """
    return math.floor((before + tasks) * RISK) - math.floor(before * RISK)


def compute_rows_seed(link: Hash, offer: Hash) -> Hash:
    """Returns the seed that draws the other rows.

    It comes from the link that drew the audit, secret when the answer was committed.
    """
    return domain_hash("others", link, offer)


def compute_change(before: Sequence[float], after: Sequence[float]) -> Change:
    """Returns the change from the losses before and after the step: first on the own rows, then on each other draw.

    A loss that is not finite counts as not having fallen at all.
    """
    falls = (had - has for had, has in zip(before, after, strict=True))
    own, *others = (
        max(-LARGEST_FALL, min(LARGEST_FALL, fall)) if math.isfinite(fall) else -LARGEST_FALL for fall in falls
    )
    return Change(own, tuple(others))


def honest_share(passed: int, runs: int) -> float | None:
    """Returns p0, the 95 % lower bound on the share of honest gradients that pass; None after few runs, or below
    LEAST."""
    if runs < RUNS:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        # the probability of `passed` or more passes in `runs`, where each comes with probability `middle`
        likely = math.fsum(
            math.comb(runs, k) * middle**k * (1.0 - middle) ** (runs - k) for k in range(passed, runs + 1)
        )
        low, high = (middle, high) if likely < DOUBT else (low, middle)
    return low if low >= LEAST else None


def compute_score_weight(passes: bool, honest: float | None) -> float:
    """Returns the weight of one score in its operator's sum; 0 where `honest`, the share of honest passes, is None."""
    if honest is None:
        return 0.0
    return math.log(BLIND / honest) if passes else math.log((1.0 - BLIND) / (1.0 - honest))


def add_score(total: float, weight: float) -> float:
    """Returns the sum after a further score.

    A test that ended with `honest` is over, and the next one starts from zero.
    """
    return weight if decide_change_verdict(total) == ChangeVerdict.HONEST else total + weight


def is_waiting_pay_due(passes: Sequence[bool], honest: float | None) -> bool:
    """Returns whether an operator whose test is open at a job's end is due its pay for answers with these scores.

    It is where they are at least as likely honest as noise: of two answers of noise, one passes in 7 of 16 cases.
    """
    return math.fsum(compute_score_weight(passed, honest) for passed in passes) <= 0.0


def decide_change_verdict(total: float) -> ChangeVerdict:
    if total >= CONVICTS:
        return ChangeVerdict.CONVICTED
    return ChangeVerdict.HONEST if total <= CLEARS else ChangeVerdict.OPEN


SHARE: Final = 1e-3
"""The step's length over the parameters' norm: large enough to show in a float32 loss, small enough to be linear."""


def move_along_gradient(state: Arrays, gradient: Tensors) -> Arrays:
    """Returns the state with its parameters moved along `gradient`, which has a tensor for each of them.

    The state is unchanged where the gradient is zero.
    """
    moved = {name: np.asarray(state[name], np.float32) for name in gradient}
    length = compute_norm(tensor.reshape(-1) for tensor in gradient.values())
    if length == 0.0:
        return state
    rate = np.float32(SHARE * compute_norm(tensor.reshape(-1) for tensor in moved.values()) / length)
    with np.errstate(invalid="ignore"):  # a gradient that is not finite moves them to NaN
        return {**state, **{name: moved[name] - rate * gradient[name] for name in gradient}}


def find_score_fault(spec: JobFields) -> str:
    """Returns why this job cannot judge answers by scores, the field first; empty where it can, or does not."""
    if not spec.verifier.scored:
        return ""
    if not replication.load_policy(spec.replication.name).ALONE:
        names = plugins.list_plugin_names(replication.__name__)
        alone = " or ".join(name for name in names if replication.load_policy(name).ALONE)
        why = f"scores what one worker answers: set replication to {alone}"
    elif spec.stake or spec.vesting:
        staked = "stake" if spec.stake else "vesting"
        why = f"gives odds and no proof, and {staked} is lost by proof only: leave it out"
    else:
        return ""
    return f"verifier: {spec.verifier.name} {why}"
