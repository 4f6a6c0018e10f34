"""Decides when a job stops: after its rounds, or at a metric, a sum or a date."""

from collections.abc import Mapping
from datetime import datetime

from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import StopAtDate, StopAtMetric, StopAtSpent
from gradmarket.market.rules import row_spending


def overdue(spec: JobSpec, now: datetime) -> bool:
    """Returns whether a date that ends the job has passed."""
    dates = [rule.date for rule in spec.stop if isinstance(rule, StopAtDate)]
    if spec.deadlines.end is not None:
        dates.append(spec.deadlines.end)
    return any(date <= now for date in dates)


def reached(
    spec: JobSpec, round_number: int, metrics: Mapping[str, float], spent: int, noised_rounds: float | None = None
) -> str:
    """Returns why the job is over after this round; empty where it is not.

    `metrics` are the round's, `spent` is in smallest token units. noised_rounds: the rounds that privacy counts, where
    they had more noise than it needs (secure_sums.rounds_spent).
    """
    for rule in spec.stop:
        if isinstance(rule, StopAtMetric) and _passed(rule, metrics.get(rule.metric)):
            return f"{rule.metric} reached {metrics[rule.metric]:.6g}"
        if isinstance(rule, StopAtSpent) and spent >= rule.spent:
            return f"{spent} were spent"
    counted = round_number + 1 if noised_rounds is None else noised_rounds
    if spec.privacy is not None and spec.rounds > round_number + 1 and counted + 1 > spec.privacy.rounds:
        done = spec.privacy.after(counted)
        return f"{done:.4g} of epsilon {spec.privacy.epsilon:g} is spent, and another round would pass it"
    if spec.step.per_row is not None and spec.rounds > round_number + 1 >= row_spending.rounds(spec, spec.step.per_row):
        done, asked = row_spending.spent(spec, spec.step.per_row, round_number + 1), spec.step.per_row
        return f"{done:.4g} of epsilon {asked.epsilon:g} of a row is spent, and another round would pass it"
    return "all rounds are done" if round_number + 1 >= spec.rounds else ""


def _passed(rule: StopAtMetric, value: float | None) -> bool:
    if value is None:
        return False
    return value <= rule.at if rule.metric == "loss" else value >= rule.at
