"""Decides when a job stops: after its rounds, or at a metric, a sum or a date."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gradmarket.market.fields import AmountField, Part, Time
from gradmarket.market.rules.privacy import Privacy
from gradmarket.market.rules.row_spending import RowSpending


class StopAtMetric(Part):
    metric: Literal["accuracy", "loss"]
    at: float


class StopAtSpent(Part):
    spent: AmountField


class StopAtDate(Part):
    date: Time


@dataclass(frozen=True, slots=True)
class Ending:
    """What ends a job: its rounds, its own rules, its last date, and what its rounds may tell of a holder or a row."""

    rounds: int
    rules: Sequence[StopAtMetric | StopAtSpent | StopAtDate]
    last: datetime | None
    privacy: Privacy | None
    rows: RowSpending | None


def is_overdue(ending: Ending, now: datetime) -> bool:
    """Returns whether a date that ends the job has passed."""
    dates = [rule.date for rule in ending.rules if isinstance(rule, StopAtDate)]
    return any(date <= now for date in (*dates, ending.last) if date is not None)


def find_stop_reason(
    ending: Ending, round_number: int, metrics: Mapping[str, float], spent: int, noised_rounds: float | None = None
) -> str:
    """Returns why the job is over after this round; empty where it is not.

    `metrics` are the round's, `spent` is in smallest token units. noised_rounds: the rounds that privacy counts, where
    they had more noise than it needs (sum_units.rounds_spent).
    """
    for rule in ending.rules:
        if isinstance(rule, StopAtMetric) and _is_metric_passed(rule, metrics.get(rule.metric)):
            return f"{rule.metric} reached {metrics[rule.metric]:.6g}"
        if isinstance(rule, StopAtSpent) and spent >= rule.spent:
            return f"{spent} were spent"
    merged, privacy, rows = round_number + 1, ending.privacy, ending.rows
    counted = merged if noised_rounds is None else noised_rounds
    if privacy is not None and ending.rounds > merged and counted + 1 > privacy.rounds:
        done = privacy.after(counted)
        return f"{done:.4g} of epsilon {privacy.epsilon:g} is spent, and another round would pass it"
    if rows is not None and ending.rounds > merged >= rows.rounds:
        done = rows.spent(merged)
        return f"{done:.4g} of epsilon {rows.asked.epsilon:g} of a row is spent, and another round would pass it"
    return "all rounds are done" if merged >= ending.rounds else ""


def _is_metric_passed(rule: StopAtMetric, value: float | None) -> bool:
    if value is None:
        return False
    return value <= rule.at if rule.metric == "loss" else value >= rule.at
