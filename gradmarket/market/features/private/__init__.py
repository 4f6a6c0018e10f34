"""Private jobs: the privacy that a job may ask for, and the worth of its answers."""

from gradmarket.market.features.private import shapley
from gradmarket.market.features.private.holder_budget import HolderBudget
from gradmarket.market.features.private.row_budget import find_row_privacy_fault
from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import MEAN, PrivateData
from gradmarket.market.rules import growth, verifiers
from gradmarket.market.rules.pricing import worth
from gradmarket.market.step import LocalStep, Schedule


def find_private_fault(spec: JobFields) -> str:
    """Returns why the job cannot be private as it asks, the field first; empty where it can, or asks for no privacy."""
    if spec.private and (why := _find_rows_fault(spec, spec.private)):
        return why
    step, least = spec.step, spec.data.least_rows if isinstance(spec.data, PrivateData) else None
    return (
        _find_noise_fault(spec)
        or find_row_privacy_fault(step.per_row, step.rows, step.moves, least)
        or _find_correction_fault(spec)
        or _find_worth_fault(spec)
    )


def _find_rows_fault(spec: JobFields, data: PrivateData) -> str:
    """Returns why a job cannot leave its rows with their holders.

    A task is one holder's in one round. Nobody else has its rows, so nobody can vote on an answer or compute it again:
    the norm bounds an answer, and the job's list of holders bounds its authors.
    """
    only = "nobody else has a holder's rows"
    if spec.step.rows > data.least_rows:
        return f"data.least_rows: a step takes {spec.step.rows} rows: name {spec.step.rows} or more"
    if spec.evaluation and data.manifest is None:
        return "evaluation: measured on rows of your own: upload them, and name their manifest in data.manifest"
    if not spec.decided_alone:
        return f'replication: {only}, so none can vote: {{"replicas": 1, "max_replicas": 1}}'
    if spec.audited:
        return f"audit: {only}, so no auditor can repeat its work: leave out audit, and policies that audit"
    if spec.verifier.name != verifiers.DEFAULT:
        return f"verifier: {only}, so nothing is compared or scored: leave out verifier"
    if spec.by_epochs:
        return "sampling: each holder draws from its own rows: leave out sampling"
    if data.rows_cap is not None and spec.aggregator.name != MEAN:
        return f"data.rows_cap: only the mean weighs answers: leave out rows_cap, or take the aggregator {MEAN}"
    return ""


def _find_noise_fault(spec: JobFields) -> str:
    """Returns why the job's merges cannot be noised."""
    data = spec.data
    if spec.privacy is None:
        return ""
    if not isinstance(data, PrivateData):
        return "privacy: only rows that stay with their holders are kept so: name holders in data, or leave it out"
    if spec.aggregator.name != MEAN or data.rows_cap is not None:
        return "privacy: one answer moves only a plain mean by a known bound: leave out aggregator and data.rows_cap"
    if (budget := HolderBudget(spec.privacy)).rounds < 1:
        return f"privacy.epsilon: a single round spends {budget.after(1):.4g}: name more, or a greater noise_multiplier"
    if spec.privacy.delta * (holders := len(data.holders)) >= 1:
        return f"privacy.delta: of {holders} holders it allows to disclose one whole: name less than {1 / holders:.3g}"
    return ""


def _find_correction_fault(spec: JobFields) -> str:
    """Returns why a job cannot have the control variates it asks for, the field first; empty where it can, or asks
    none."""
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
        return "optimizer: control variates follow from the change of a round: take sgd with its lr and no more"
    if spec.downlink.small:
        return "downlink: control variates follow from exact parameters: leave out downlink"
    return ""


def _find_worth_fault(spec: JobFields) -> str:
    """Returns why answers cannot be paid by worth."""
    settings, data = spec.price.settings, spec.data
    if not isinstance(settings, worth.Settings):
        return ""
    if not isinstance(data, PrivateData) or spec.evaluation is None:
        return (
            "price: worth is measured on rows of your own, of answers that nobody can repeat: name holders and "
            "evaluation"
        )
    if spec.privacy is not None or data.secure_aggregation is not None:
        return "price: pay by worth discloses what noise or masks hide: leave out privacy and data.secure_aggregation"
    if spec.aggregator.name != MEAN or spec.optimizer.name != "sgd" or spec.overlap:
        return (
            "price: worth counts what each adds to a plain mean: leave out aggregator and overlap, and take the "
            "optimizer sgd"
        )
    sizes = growth.build_round_sizes(spec.tasks_per_round, spec.growth, spec.rounds)
    if 8 * settings.draws * sizes.most > shapley.MOST_VALUES:
        most = shapley.MOST_VALUES
        return f"price: worth measures at most {most} groups a round: name fewer draws or tasks_per_round"
    return ""
