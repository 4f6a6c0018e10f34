"""The ready-made metrics by name, and the direction in which each is better.

`runner.ready_metrics` computes them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from gradmarket.market.fields import METRIC_NAME

LOSS: Final = "loss"
READY: Final = {
    "accuracy": "the share of labels whose class has the highest score.",
    "auc": "the chance that a row of the class has a higher score than one of another, ties half (Mann and Whitney "
    "1947); of more than two classes the mean of each against the rest, by softmax (Hand and Till 2001).",
    "f1": "2 TP / (2 TP + FP + FN) of class 1; of more than two classes the mean over those that occur.",
    "mean_iou": "TP / (TP + FP + FN), the mean over the classes that occur (Everingham et al. 2010).",
    "perplexity": "e to the mean cross-entropy.",
    "top5": "the share of labels whose class has fewer than five higher scores; so with any number from 1 to 99.",
}
"""The definition of each."""
MetricName = Annotated[str, Field(pattern=METRIC_NAME)]
Better = Literal["higher", "lower"]
_TOP: Final = re.compile(r"top([1-9][0-9]?)")
_LOWER: Final = (LOSS, "perplexity")


def parse_top(name: str) -> int | None:
    """Returns k of the metric topk; None of another name."""
    match = _TOP.fullmatch(name)
    return int(match[1]) if match else None


def is_ready(name: str) -> bool:
    return name in READY or parse_top(name) is not None


def better_of(name: str, given: Better | None = None) -> Better:
    """Returns the direction in which a metric is better: as given, else lower for loss and perplexity, else higher."""
    return given or ("lower" if name in _LOWER else "higher")


def is_better(metric: str, value: float, than: float, better: Better | None = None) -> bool:
    """Returns whether a value is strictly better, by `better` where it is given. Nothing is better by being NaN."""
    return value < than if better_of(metric, better) == "lower" else value > than


def choose_metric(wanted: str, measured: Iterable[Mapping[str, float]]) -> str:
    """Returns the metric to compare by: the one wanted, or the loss where none has it, as of a language model."""
    return wanted if any(wanted in metrics for metrics in measured) else LOSS
