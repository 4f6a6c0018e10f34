"""Steps that only a holder of rows takes: noised by row, or corrected by control variates."""

from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import PrivateData
from gradmarket.market.rules import row_privacy
from gradmarket.market.rules.private_jobs import MEAN
from gradmarket.market.step import LocalStep, Schedule


def fault(spec: JobFields) -> str:
    """Returns why the job's tasks cannot be such steps, the field first; empty where they can, or are none."""
    step, least = spec.step, spec.data.least_rows if isinstance(spec.data, PrivateData) else None
    return row_privacy.find_row_privacy_fault(step.per_row, step.rows, step.moves, least) or uncorrected(spec)


def uncorrected(spec: JobFields) -> str:
    """Returns why a job has no control variates that it asks for, the field first; empty where it has, or asks none."""
    if not isinstance(spec.step, LocalStep) or not spec.step.control_variates:
        return ""
    if not isinstance(spec.data, PrivateData):
        return "step.control_variates: they stay with the holders of rows: name holders in data, or leave it out"
    count, chosen = len(spec.data.holders), spec.optimizer
    if spec.tasks_per_round != count or spec.min_tasks is not None or spec.growth:
        return f"tasks_per_round: control variates are of all holders in every round: {count}, no min_tasks, no growth"
    if spec.privacy is not None:
        return "privacy: noise of a merge would stay in the control variates: leave it out, or control_variates"
    if spec.overlap:
        return "overlap: a round's control variates follow from the round before: leave out overlap"
    if spec.aggregator.name != MEAN:
        return "aggregator: control variates are of the mean: leave out aggregator"
    if chosen.name != "sgd" or chosen.settings or chosen.clip is not None or chosen.schedule != Schedule():
        return "optimizer: control variates follow from what rounds change: take sgd with its lr and no more"
    if spec.downlink.small:
        return "downlink: control variates follow from exact parameters: leave out downlink"
    return ""
