"""A job's figures of trust: how often colluders decide, how soon they are caught, what deters, what it costs."""

from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from gradmarket.market.job import JobSpec
from gradmarket.market.rules import auditing, exposure
from gradmarket.market.rules.collusion import ColludingPool, odds, over_a_job, silent
from gradmarket.market.rules.replication import Plan


@dataclass(frozen=True, slots=True)
class Assumed:
    """What the job's file does not say. Amounts in prices of a gradient."""

    shares: tuple[Fraction, ...]
    """Of the workers, that act as one."""
    workers: int | None
    """In the market; None is a market without end."""
    audit: float | None
    """The probability that an accepted task is audited, instead of what the file says; None to leave that."""
    stake: float
    saved: float
    """By not computing: at most the price, or nobody would work."""
    benefit: float
    """A wrong gradient's worth to who sends it, besides."""


@dataclass(frozen=True, slots=True)
class Row:
    """With this share of colluders. Infinite times are None."""

    colluding: float
    wrong_per_task: float
    """A task is accepted wrongly: colluders hold the quorum, or lie and have it in the end."""
    silently: float
    """They hold it in the first wave, and lie only then: votes never show it."""
    wrong_in_job: float
    """At least one task of the job is."""
    tasks_until_caught: float | None
    """On average, where they lie whenever they can: an audit finds it."""
    compute: float
    """Computations for each accepted task, audits included; plain training is 1."""


@dataclass(frozen=True, slots=True)
class Deterrence:
    """What one worker that lies gains and loses."""

    least_audit: float | None
    """(c + B) / S; None where nothing is at risk."""
    deterred: bool
    spoiled_before_caught: float | None
    """Wrong gradients within which it is caught with 95 %."""
    stake_needed: float | None
    """To cover them, in prices."""


@dataclass(frozen=True, slots=True)
class Forecast:
    plan: Plan
    tasks: int
    rows: tuple[Row, ...]
    deterrence: Deterrence

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def forecast(spec: JobSpec, assumed: Assumed) -> Forecast:
    plan = spec.plan() if assumed.audit is None else replace(spec.plan(), audit=assumed.audit)
    tasks = spec.rounds * spec.tasks_needed
    rows = tuple(_row(plan, tasks, ColludingPool(share, assumed.workers)) for share in assumed.shares)
    return Forecast(plan, tasks, rows, _deterrence(plan.audit, assumed))


def _row(plan: Plan, tasks: int, pool: ColludingPool) -> Row:
    found = odds(plan, pool)
    wrong = found.wrongly_accepted
    return Row(
        colluding=float(pool.colluding),
        wrong_per_task=float(wrong),
        silently=float(silent(plan, pool)),
        wrong_in_job=over_a_job(wrong, tasks),
        tasks_until_caught=_finite(exposure.expected_before_caught(plan.audit, float(wrong))),
        compute=float(found.replicas) + plan.audit,
    )


def _deterrence(audit: float, assumed: Assumed) -> Deterrence:
    gain = assumed.saved + assumed.benefit
    least = auditing.deterring(assumed.saved, assumed.benefit, assumed.stake)
    return Deterrence(
        least_audit=_finite(least),
        deterred=audit > least,
        spoiled_before_caught=_finite(exposure.tasks_before_caught(audit)),
        stake_needed=_finite(exposure.exposure(audit, gain)),
    )


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value
