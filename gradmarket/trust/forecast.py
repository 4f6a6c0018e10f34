"""A job's trust forecast: how often colluders decide, how soon they are caught, their deterrents, and the cost."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Final

from gradmarket.market.features.audits import auditing
from gradmarket.market.features.drift import FALSE_ALARM, compute_unseen_push, find_earliest_alarm
from gradmarket.market.features.windows import compute_detection_rate, compute_repeated_share
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.replication import BEST, fixed, proven
from gradmarket.market.step import LocalStep, Step
from gradmarket.market.terms import DOUBT, Plan
from gradmarket.trust.collusion import (
    ColludingPool,
    compute_lying_pay,
    compute_odds,
    compute_sharing_pay,
    compute_silent_share,
    over_a_job,
)
from gradmarket.trust.played_rings import PlayedRings, play_rings


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions that the job's file does not contain. Amounts in prices of a gradient."""

    shares: tuple[Fraction, ...]
    """Shares of the workers that act as one."""
    workers: int | None
    """Number of workers in the market; None for an unlimited market."""
    audit: float | None
    """The probability that an accepted task is audited, instead of the file's; None to keep that."""
    stake: float
    saved: float
    """Saved by not computing: at most the price, or nobody would work."""
    benefit: float
    """The worth of a wrong gradient to its sender, besides the saved computing."""


@dataclass(frozen=True, slots=True)
class Row:
    """The forecast for one share of colluders. Infinite times are None."""

    colluding: float
    wrong_per_task: float
    """The probability that a task is wrongly accepted: colluders hold the quorum, or lie and win it in the end."""
    silently: float
    """The probability that they hold it in the first wave, and lie only then: votes never show it."""
    wrong_in_job: float
    """The probability that at least one task of the job is wrongly accepted."""
    tasks_until_caught: float | None
    """The average number of tasks until an audit catches them, if they lie whenever they can."""
    compute: float
    """Computations per accepted task, audits included; plain training is 1."""
    wrong_at_end: float
    """The probability that a task is wrong at the job's end, where nothing but its own audit finds a lie."""
    sharing_pay: float | None
    """The colluders' pay in prices for each gradient that they compute, where they are honest and compute once for all
    of their seats in a task. None where they have no seat."""
    lying_pay: float | None
    """The same where they compute nothing in tasks that they decide in the first wave, and a caught one comes back
    under a free identity. None without bound."""
    unseen_push: float | None
    """How far they push the sum of all updates together before the alarm on drift is expected, if their answers are
    accepted: in lengths of an honest answer's error. None where no alarm can come."""


@dataclass(frozen=True, slots=True)
class Deterrence:
    """The gains and losses of a single lying worker."""

    least_audit: float | None
    """(c + B) / S; None if nothing is at risk."""
    deterred: bool
    spoiled_before_caught: float | None
    """Wrong gradients within which it is caught with 95 % confidence."""
    stake_needed: float | None
    """The stake that covers them, in prices."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The audited part of a task: two of `count` windows, `share` of its inner steps (features.windows)."""

    count: int
    share: float
    found: float
    """How often an audit finds an answer that is wrong in one window; in the last one it always does."""

    @classmethod
    def of(cls, step: Step) -> "Windows | None":
        """Returns None where an audit repeats the whole task."""
        if not isinstance(step, LocalStep) or step.window is None:
            return None
        share = compute_repeated_share(step.steps, step.window)
        return cls(step.leaves + 1, share, compute_detection_rate(1, step.leaves))


@dataclass(frozen=True, slots=True)
class DriftAlarm:
    """Conditions of a drift alarm (features.drift). `rounds` of the job have `answers` each, of one operator each."""

    rounds: int
    answers: int
    operators: int
    earliest: int
    """The first round after which an alarm can come."""
    false_alarm: float
    honest_push: float
    """The length of the sum of the errors of all honest answers, in that of one answer's."""

    @classmethod
    def of(cls, spec: JobSpec, workers: int | None) -> "DriftAlarm":
        answers = spec.tasks_needed
        operators = max(workers or answers, 1)
        honest = math.sqrt(spec.rounds / answers)
        return cls(spec.rounds, answers, operators, find_earliest_alarm(operators), FALSE_ALARM, honest)

    def compute_unseen_push(self, share: Fraction) -> float:
        """Returns the unseen push of the answers of this share of the operators, one at least."""
        leaning = max(1, round(share * self.answers))
        return compute_unseen_push(self.rounds, self.answers, leaning, self.operators) if share else 0.0


COMPARED: Final[Mapping[str, Plan]] = {
    "majority of 3 to 5": fixed.plan(fixed.Settings()),
    "majority of 5 to 7": fixed.plan(fixed.Settings(replicas=5, max_replicas=7)),
    "proven: 3, audited at 20 %": proven.plan(proven.Settings(), BEST),
    "proven: 2, audited at 30 %": proven.plan(proven.Settings(replicas=2, audit=0.3), BEST),
    "one, audited at 10 %": Plan(1, 1, 1, 0.1),
    "one, audited always": Plan(1, 1, 1, 1.0),
}
"""Plans that a forecast is shown beside."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The gains of the same colluders under another plan, a row for each share."""

    plan: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    plan: Plan
    tasks: int
    rows: tuple[Row, ...]
    deterrence: Deterrence
    drift: DriftAlarm
    windows: Windows | None = None
    others: tuple[Compared, ...] = ()
    returning: float | None = None
    """The share of tasks that colluders of any number leave wrong in a long job, if each that is caught comes back as a
    newcomer (features.proven.seat_rules). None where newcomers vote."""
    spent: tuple[float, ...] = ()
    """For each share of colluders, the share of the job's tasks that they leave wrong if all were proven before, until
    convictions have spent them. Empty where newcomers vote."""
    played: PlayedRings | None = None
    """Shares of tasks left wrong by patient, late, quick or flooding rings, with intervals."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compute_forecast(spec: JobSpec, assumed: Assumed) -> Forecast:
    """Where audits repeat windows of a task, the forecast has each lie in one window, the case found most rarely.

    Where newcomers work alone, the plan is that of proven ones: the colluders' best case.
    """
    plan = spec.fullest_plan if assumed.audit is None else replace(spec.fullest_plan, audit=assumed.audit)
    tasks, windows = spec.all_needed, Windows.of(spec.step)
    found, share = (1.0, 1.0) if windows is None else (windows.found, windows.share)
    seen, repeated = plan.audit * found, plan.audit * share
    alarm = DriftAlarm.of(spec, assumed.workers)

    def build_rows(by: Plan, seen: float, repeated: float) -> tuple[Row, ...]:
        pools = (ColludingPool(part, assumed.workers) for part in assumed.shares)
        return tuple(
            _build_row(by, tasks, pool, seen, repeated, alarm.compute_unseen_push(pool.colluding)) for pool in pools
        )

    others = tuple(Compared(name, build_rows(other, other.audit, other.audit)) for name, other in COMPARED.items())
    gain = assumed.saved + assumed.benefit
    least = auditing.compute_deterring_rate(assumed.saved, assumed.benefit, assumed.stake)
    deterrence = Deterrence(
        least_audit=_replace_infinite(least),
        deterred=seen > least,
        spoiled_before_caught=_replace_infinite(tasks_before_caught(seen)),
        stake_needed=_replace_infinite(compute_exposure(seen, gain)),
    )
    returning: float | None = None
    spent: tuple[float, ...] = ()
    if spec.proof and plan.audit:
        returning = proven.compute_final_wrong(plan.audit, plan.first_wave, spec.proof)
        free = max(0, spec.rounds - proven.LAST)  # no task of the last rounds stays wrong: all of them are audited
        spent = tuple(
            proven.compute_stock_wrong(plan.audit, plan.first_wave, free, float(share)) * free / spec.rounds
            for share in assumed.shares
        )
    rows = build_rows(plan, seen, repeated)
    played = play_rings(spec, plan, [float(share) for share in assumed.shares], assumed.workers)
    return Forecast(plan, tasks, rows, deterrence, alarm, windows, others, returning, spent, played)


def _build_row(plan: Plan, tasks: int, pool: ColludingPool, seen: float, repeated: float, push: float) -> Row:
    chances = compute_odds(plan, pool)
    wrong = chances.wrongly_accepted
    return Row(
        colluding=float(pool.colluding),
        wrong_per_task=float(wrong),
        silently=float(compute_silent_share(plan, pool)),
        wrong_in_job=over_a_job(wrong, tasks),
        tasks_until_caught=_replace_infinite(expected_before_caught(seen, float(wrong))),
        compute=float(chances.replicas) + repeated,
        wrong_at_end=float(wrong) * (1.0 - seen),
        sharing_pay=_convert_pay(compute_sharing_pay(plan, pool)),
        lying_pay=_convert_pay(compute_lying_pay(plan, pool)),
        unseen_push=_replace_infinite(push),
    )


def _convert_pay(pay: Fraction | None) -> float | None:
    return None if pay is None else float(pay)


def _replace_infinite(value: float) -> float | None:
    return None if value == float("inf") else value


CONFIDENCE: Final = 1.0 - DOUBT


def tasks_before_caught(rate: float, confidence: float = CONFIDENCE) -> float:
    """Returns within how many wrong gradients one is audited with this confidence; infinite at rate 0."""
    if rate >= 1.0:
        return 1.0
    return math.ceil(math.log1p(-confidence) / math.log1p(-rate)) if rate > 0.0 else math.inf


def expected_before_caught(rate: float, share: float = 1.0) -> float:
    """Returns after how many tasks on average a worker is caught: 1 / (p * share).

    `share` is the share of its answers that are wrong.
    """
    return 1.0 / (rate * share) if rate * share > 0.0 else math.inf


def compute_exposure(rate: float, gain: float) -> float:
    """Returns the stake needed for a worker audited at `rate` that gains `gain` by each wrong gradient."""
    return gain * tasks_before_caught(rate)
