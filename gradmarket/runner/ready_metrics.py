"""Computes ready-made metrics from a model's answers to all held-out rows together.

An answer is scores float32[rows, classes], or with places as float32[rows, classes, …] (as torch's cross-entropy takes
them), or float32[rows, length, classes] of a language model; labels `y` are whole numbers without the classes'
dimension, and a label of -100 counts for nothing. Where the answer has as many numbers as `y`, each is the logit of
class 1 of two. A metric is one float32, NaN where it is not
defined, as where a score is NaN. Their definitions and sources are in `market.rules.metric_names`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from gradmarket.market.errors import Refused
from gradmarket.market.rules import metric_names as names
from graphdoc.export import scores_of
from graphdoc.values import IGNORED

Metric = Callable[[Any, Tensor], Tensor]
"""(the module's answer to all rows, y) -> one number."""
AUC_CLASSES: Final = 100


def load_metric(name: str) -> Metric:
    """Returns a ready-made metric. Raises Refused, naming those there are."""
    if (k := names.parse_top(name)) is not None:
        return partial(_by_labels, partial(_compute_top, k))
    if name not in _READY:
        raise Refused(f"there is no metric {name!r}: choose one of {', '.join(names.READY)}")
    return partial(_by_labels, _READY[name])


def compute_metrics(metrics: Mapping[str, Metric], answer: Any, y: Tensor) -> dict[str, Tensor]:
    """Returns each metric's value as one float32. Raises Refused, naming a metric with any other result."""
    values = {}
    for name, metric in metrics.items():
        value = metric(answer, y)
        if not isinstance(value, Tensor) or value.numel() != 1:
            given = f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise Refused(f"metrics: {name} gives {given}: return a tensor of one number, such as a mean")
        values[name] = value.reshape(()).to(torch.float32)
    return values


@dataclass(frozen=True)
class _Labelled:
    """`scores` float32[places, classes]; `truth` and `guess` bool[places, classes], the class of each place.

    A place that does not count has neither.
    """

    scores: Tensor
    truth: Tensor
    guess: Tensor
    counted: Tensor


def _by_labels(metric: Callable[[_Labelled], Tensor], answer: Any, y: Tensor) -> Tensor:
    scores = scores_of(answer)
    if scores is None or not scores.is_floating_point():
        raise Refused("metrics: the module's answer is no tensor of scores: write a function of the answer and y")
    scores, labels = _part_classes(scores, y)
    classes = torch.arange(scores.shape[1])
    counted = labels.ne(IGNORED).unsqueeze(1)
    truth = labels.unsqueeze(1).eq(classes)
    guess = scores.argmax(1).unsqueeze(1).eq(classes).logical_and(counted)
    undefined = scores.isnan().logical_and(counted).sum().gt(0)
    return metric(_Labelled(scores, truth, guess, counted)).masked_fill(undefined, torch.nan)


def _part_classes(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the scores as [places, classes], and the labels int64[places]."""
    labels = y.to(torch.int64).flatten()
    places = tuple(y.shape[1:])
    if tuple(scores.shape[1:]) in (places, (*places, 1)) or (*tuple(scores.shape[1:]), 1) == places:
        one = scores.flatten()
        return torch.stack([torch.zeros_like(one), one], 1), labels
    if scores.dim() == y.dim() + 1:
        last, second = tuple(scores.shape[1:-1]) == places, tuple(scores.shape[2:]) == places
        if last and (scores.dim() == 3 or not second):
            return scores.flatten(0, -2), labels
        if second:
            return scores.movedim(1, -1).flatten(0, -2), labels
    raise Refused(
        f"metrics: the answer has {list(scores.shape[1:])} numbers a row and y {list(places)}: ready-made metrics take "
        "a score for each class and labels; write a function of the answer and y"
    )


def _compute_top(k: int, of: _Labelled) -> Tensor:
    own = of.scores.masked_fill(of.truth.logical_not(), -torch.inf).amax(1, keepdim=True)
    higher = of.scores.gt(own).sum(1, keepdim=True)
    return higher.lt(k).logical_and(of.counted).sum() / of.counted.sum()


def _compute_auc(of: _Labelled) -> Tensor:
    classes = of.scores.shape[1]
    if classes > AUC_CLASSES:
        raise Refused(f"metrics: auc takes at most {AUC_CLASSES} classes, not {classes}: take top5 or f1")
    if classes == 2:
        return _compare_pairs(of.scores[:, 1] - of.scores[:, 0], of.truth[:, 1], of.truth[:, 0])
    chances = of.scores.softmax(1)
    each = []
    for one in range(classes):
        own = of.truth[:, one]
        each.append(_compare_pairs(chances[:, one].contiguous(), own, own.logical_not().logical_and(of.counted[:, 0])))
    return torch.stack(each).mean()


def _compare_pairs(scores: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """Returns the share of pairs (own, other) in which the own score is higher; equal ones are half a pair.

    Pairs are counted in whole numbers, twice each, by the places of the own scores among the others' in order.
    """
    number, undefined = others.sum(), scores.isnan().logical_and(own.logical_or(others)).sum().gt(0)
    ordered = scores.masked_fill(others.logical_not(), torch.inf).sort().values
    twice = torch.bucketize(scores, ordered) + torch.minimum(torch.bucketize(scores, ordered, right=True), number)
    return ((twice * own).sum() / (2 * own.sum() * number)).masked_fill(undefined, torch.nan)


def _compute_f1(of: _Labelled) -> Tensor:
    right, either = of.truth.logical_and(of.guess).sum(0), of.truth.sum(0) + of.guess.sum(0)
    each = 2 * right / either.clamp(min=1)
    return each[1] if of.scores.shape[1] == 2 else each.sum() / either.gt(0).sum()


def _compute_mean_iou(of: _Labelled) -> Tensor:
    right = of.truth.logical_and(of.guess).sum(0)
    union = of.truth.sum(0) + of.guess.sum(0) - right
    return (right / union.clamp(min=1)).sum() / union.gt(0).sum()


def _compute_perplexity(of: _Labelled) -> Tensor:
    chosen = of.scores.log_softmax(1).masked_fill(of.truth.logical_not(), 0.0)
    return (-chosen.sum() / of.counted.sum()).exp()


_READY: Final[dict[str, Callable[[_Labelled], Tensor]]] = {
    "accuracy": lambda of: of.truth.logical_and(of.guess).sum() / of.counted.sum(),
    "auc": _compute_auc,
    "f1": _compute_f1,
    "mean_iou": _compute_mean_iou,
    "perplexity": _compute_perplexity,
}


def load_metrics(asked: Sequence[str]) -> dict[str, Metric]:
    return {name: load_metric(name) for name in asked}
