"""Decides when a job stops: after its rounds, or at a metric, once a metric has stalled, at a sum or a date."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from pydantic import Field

from gradmarket.market.fields import AmountField, Count, Part, Time
from gradmarket.market.rules.metric_names import Better, MetricName, better_of

_REACHED: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(>=?|<=?)\s*([-+.0-9eE]+)\s*")
_STALLED: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s+stalls\s+([0-9]+)\s*")


RULE: Final = "write one like 'auc > 0.9', 'loss < 0.1' or 'auc stalls 5'"


def _is_none(value: Any) -> bool:
    return value is None


class StopAtMetric(Part):
    metric: MetricName
    at: float
    better: Better | None = Field(default=None, exclude_if=_is_none)
    """Which way it is better: `lower` for loss and perplexity where it is left out, else `higher`."""


class StopAtPatience(Part):
    """Ends the job once this many evaluations in a row were no better than the best before them (Prechelt 1998)."""

    metric: MetricName
    patience: Count
    least: float = Field(default=0.0, ge=0.0, exclude_if=lambda value: value == 0.0)
    """An evaluation is better only by more than this."""
    better: Better | None = Field(default=None, exclude_if=_is_none)
    """See StopAtMetric."""


class StopAtSpent(Part):
    spent: AmountField


class StopAtDate(Part):
    date: Time


StopRule = StopAtMetric | StopAtPatience | StopAtSpent | StopAtDate


def read_stop_rule(value: Any) -> Any:
    """Returns a rule written as text ("auc > 0.9", "loss stalls 5") as its fields; anything else unchanged."""
    if isinstance(value, bool | int | float | list | tuple) or value is None:
        raise ValueError(f"{str(value)[:60]!r} is no rule: {RULE}")
    if not isinstance(value, str):
        return value
    if (stalled := _STALLED.fullmatch(value)) is not None:
        return {"metric": stalled[1], "patience": int(stalled[2])}
    reached = _REACHED.fullmatch(value)
    try:
        at = float(reached[3]) if reached else math.nan
    except ValueError:
        at = math.nan
    if reached is None or not math.isfinite(at):
        raise ValueError(f"{value[:60]!r} is no rule: {RULE}")
    better = "higher" if reached[2].startswith(">") else "lower"
    usual = better == better_of(reached[1])
    return {"metric": reached[1], "at": at} | ({} if usual else {"better": better})


def find_direction(rules: Sequence[StopRule], metric: str) -> Better | None:
    """Returns the direction in which a rule counts the metric as better; None where no rule names one."""
    watched = (rule for rule in rules if isinstance(rule, StopAtMetric | StopAtPatience))
    return next((rule.better for rule in watched if rule.metric == metric and rule.better), None)


class Budget(Protocol):
    """A bound on all rounds of a job together."""

    def find_end(self, merged: int, noised_rounds: float | None) -> str:
        """Returns why no round may follow the merged ones; empty where one may."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The conditions that end a job: its rounds, its own rules, its last date, and the budgets of its features."""

    rounds: int
    rules: Sequence[StopRule]
    last: datetime | None
    budgets: Sequence[Budget]


def is_overdue(ending: Ending, now: datetime) -> bool:
    """Returns whether a date that ends the job has passed."""
    dates = [rule.date for rule in ending.rules if isinstance(rule, StopAtDate)]
    return any(date <= now for date in (*dates, ending.last) if date is not None)


def find_met_rule(rules: Sequence[StopRule], metrics: Mapping[str, float]) -> str:
    """Returns the rule that a model with these metrics meets before it is trained on; empty where none is met."""
    for rule in rules:
        if isinstance(rule, StopAtMetric) and _is_metric_passed(rule, metrics.get(rule.metric)):
            return f"stop at {rule.metric} {rule.at:g} is met already by {metrics[rule.metric]:.6g}"
    return ""


def find_stop_reason(
    ending: Ending,
    round_number: int,
    measured: Sequence[Mapping[str, float] | None],
    spent: int,
    noised_rounds: float | None = None,
) -> str:
    """Returns why the job is over after this round; empty where it is not.

    `measured` are the metrics of the rounds so far, this round's last: None for a round that was not evaluated, and
    empty for a model without figures, such as one that diverged; `spent` is in smallest token units. noised_rounds: the
    rounds that privacy counts, where they had more noise than it needs (sum_units.rounds_spent).
    """
    metrics = (measured[-1] if measured else None) or {}
    for rule in ending.rules:
        if isinstance(rule, StopAtPatience) and (why := _find_stalled(rule, measured)):
            return why
        if isinstance(rule, StopAtMetric) and _is_metric_passed(rule, metrics.get(rule.metric)):
            return f"{rule.metric} reached {metrics[rule.metric]:.6g}"
        if isinstance(rule, StopAtSpent) and spent >= rule.spent:
            return f"{spent} were spent"
    merged = round_number + 1
    if ending.rounds > merged:
        return next(filter(None, (budget.find_end(merged, noised_rounds) for budget in ending.budgets)), "")
    return "all rounds are done"


def _is_metric_passed(rule: StopAtMetric, value: float | None) -> bool:
    if value is None:
        return False
    return value <= rule.at if better_of(rule.metric, rule.better) == "lower" else value >= rule.at


def _find_stalled(rule: StopAtPatience, measured: Sequence[Mapping[str, float] | None]) -> str:
    """Returns why a metric has stalled; empty where it has not. An evaluation without it counts as no better."""
    if not measured or measured[-1] is None:
        return ""
    sign = -1.0 if better_of(rule.metric, rule.better) == "lower" else 1.0
    best, since = -math.inf, 0
    for metrics in (one for one in measured if one is not None):
        value = sign * metrics.get(rule.metric, -sign * math.inf)
        best, since = (value, 0) if value > best + rule.least else (best, since + 1)
    if since < rule.patience:
        return ""
    if best == -math.inf:
        return f"{rule.metric} was not defined in {since} evaluations"
    return f"{rule.metric} has not improved on {sign * best:.6g} in {since} evaluations"
