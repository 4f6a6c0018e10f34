"""Jobs whose rows stay with their holders: their permitted settings, the workers of their tasks, and the weight of an
answer.

A task of such a job is one holder's in one round. Nobody else has its rows, so nobody can vote on an answer or compute
it again: the norm bounds an answer, and the job's list of holders bounds its authors.
"""

from typing import Final

MEAN: Final = "mean"


def find_private_job_fault(
    alone: bool, audited: bool, judged: str, by_epochs: bool, weighted: bool, aggregator: str
) -> str:
    """Returns why a private job cannot be of these settings, the field first; empty where it can.

    alone: each task has one replica. judged: its verifier.
    """
    only = "nobody else has a holder's rows"
    if not alone:
        return f'replication: {only}, so none can vote: {{"replicas": 1, "max_replicas": 1}}'
    if audited:
        return f"audit: {only}, so no auditor can repeat its work: leave out audit, and policies that audit"
    if judged != "exact":
        return f"verifier: {only}, so nothing is compared or scored: leave out verifier"
    if by_epochs:
        return "sampling: each holder draws from its own rows: leave out sampling"
    if weighted and aggregator != MEAN:
        return f"data.rows_cap: only the mean weighs answers: leave out rows_cap, or take the aggregator {MEAN}"
    return ""


def describe_visibility(visibility: str, private: bool, secure: bool, noised: bool) -> str:
    """Returns a text on the visibility of a job. secure: its holders' answers are summed under masks; noised: by their
    own noise."""
    model = _model_seen(visibility, private)
    return f"{model} {_rows_seen(secure, noised)}" if private else model


def _model_seen(visibility: str, private: bool) -> str:
    """Returns a text on who sees model and data. Only parameters are ever hidden: document and manifest are for all."""
    data = "what it is measured on" if private else "the training data of this job"
    model = "the model of this job" if private else "the model"
    if visibility == "public":
        return f"Everybody sees the model of this job. Workers see {data}{_ANYBODY}"
    if visibility == "requester":
        return (
            f"Workers see the architecture of the model and {data}{_ANYBODY} The model's parameters are seen by "
            "the requester, and by a worker while it computes on them."
        )
    return f"Workers see {model} and {data}{_ANYBODY}"


_ANYBODY: Final = ", and anybody may sign in as a worker."


def _rows_seen(secure: bool, noised: bool) -> str:
    answers = "the sum of a round's answers, and none of them alone" if secure else "what each answers"
    bare = (
        " Warning: the sum has no noise, and a model made for it reads single rows off a sum: name privacy or "
        "step.per_row."
    )
    return f"The holders' rows stay with them; the service sees {answers}.{bare if secure and not noised else ''}"
