"""The visibility of a job's model, data and answers to others, in words."""

from typing import Final


def describe_visibility(visibility: str, private: bool, secure: bool, noised: bool) -> str:
    """Returns a text on the visibility of a job. secure: its holders' answers are summed under masks; noised: by their
    own noise."""
    model = _model_seen(visibility, private)
    return f"{model} {_rows_seen(secure, noised)}" if private else model


def _model_seen(visibility: str, private: bool) -> str:
    """Returns the text on the readers of model and data; it never hides document and manifest, only parameters."""
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
