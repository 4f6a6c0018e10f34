"""Ready-made metrics against scikit-learn's, of all rows together; own functions as documents; and their mistakes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradmarket.market.errors import DocumentRefused, Refused
from gradmarket.runner import ready_metrics as metrics
from gradmarket.sdk.measuring import Measuring, check_measured
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.export import export_module
from graphdoc.figures import Published
from graphdoc.passes import evaluate, measure
from tests.kit.late_module import LateModule
from tests.lanes import leave_to_full

sklearn_metrics: Any = LateModule("sklearn.metrics")
ROWS = 300


def measured(name: str, answer: Any, y: Tensor) -> float:
    values = metrics.compute_metrics({name: metrics.load_metric(name)}, answer, y)
    return float(values[name])


def drawn(classes: int, rows: int = ROWS, ties: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    y = torch.arange(rows) % classes
    scores = torch.randn(rows, classes, generator=generator) + nn.functional.one_hot(y, classes)
    return (scores * 2).round() / 2 if ties else scores, y


@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_of_classes_are_scikit_learns(classes: int) -> None:
    scores, y = drawn(classes)
    chances, guess = scores.double().softmax(1).numpy(), scores.argmax(1).numpy()
    averaged = "binary" if classes == 2 else "macro"
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(y, guess),
        "f1": sklearn_metrics.f1_score(y, guess, average=averaged),
        "mean_iou": sklearn_metrics.jaccard_score(y, guess, average="macro"),
        "perplexity": np.exp(sklearn_metrics.log_loss(y, chances)),
        "auc": sklearn_metrics.roc_auc_score(y, chances[:, 1] if classes == 2 else chances, multi_class="ovr"),
    }
    expected |= {"top2": sklearn_metrics.top_k_accuracy_score(y, chances, k=2)} if classes > 2 else {"top2": 1.0}
    assert {name: measured(name, scores, y) for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1)])
def test_one_number_a_row_is_the_logit_of_class_1(shape: tuple[int, ...]) -> None:
    scores, y = drawn(2, ties=True)
    logit = scores[:, 1] - scores[:, 0]
    assert len(logit.unique()) < ROWS / 5, "many ties"
    expected = sklearn_metrics.roc_auc_score(y, logit)
    assert measured("auc", logit.reshape(shape), y.reshape(shape).float()) == pytest.approx(expected, rel=1e-6)
    assert measured("f1", logit.reshape(shape), y.float()) == pytest.approx(
        sklearn_metrics.f1_score(y, logit > 0), rel=1e-6
    )


@pytest.mark.parametrize("last", [False, True])
def test_places_are_counted_one_by_one_but_those_without_a_label(last: bool) -> None:
    """A segmentation's classes are the second dimension, a language model's the last."""
    flat, labels = drawn(4, 6 * 20)
    scores, y = flat.reshape(6, 20, 4), labels.reshape(6, 20).clone()
    y[:, ::7] = -100
    counted = y.flatten() != -100
    chances, guess = flat.double().softmax(1).numpy()[counted], flat.argmax(1)[counted]
    answer = scores if last else scores.reshape(6, 4, 5, 4).permute(0, 3, 1, 2)
    target = y if last else y.reshape(6, 4, 5)
    expected = {
        "perplexity": np.exp(sklearn_metrics.log_loss(labels[counted], chances)),
        "mean_iou": sklearn_metrics.jaccard_score(labels[counted], guess, average="macro"),
        "accuracy": sklearn_metrics.accuracy_score(labels[counted], guess),
        "auc": sklearn_metrics.roc_auc_score(labels[counted], chances, multi_class="ovr"),
        "f1": sklearn_metrics.f1_score(labels[counted], guess, average="macro"),
        "top3": sklearn_metrics.top_k_accuracy_score(labels[counted], chances, k=3),
    }
    assert {name: measured(name, answer, target) for name in expected} == pytest.approx(expected, rel=1e-5)


def test_a_class_that_does_not_occur_counts_for_nothing_as_scikit_learn_has_it() -> None:
    scores, y = drawn(3)
    scores = torch.cat([scores, torch.full((ROWS, 1), -9.0)], 1)
    guess = scores.argmax(1)
    assert measured("f1", scores, y) == pytest.approx(sklearn_metrics.f1_score(y, guess, average="macro"))
    assert measured("mean_iou", scores, y) == pytest.approx(sklearn_metrics.jaccard_score(y, guess, average="macro"))
    assert np.isnan(measured("auc", scores, y)), "no pair has the class"


@pytest.mark.parametrize("name", ["accuracy", "auc", "f1", "mean_iou", "perplexity", "top1", "top5"])
@pytest.mark.parametrize("classes", [2, 6])
def test_scores_that_are_no_numbers_measure_nothing(name: str, classes: int) -> None:
    """A model that diverged had an AUC of 2 and was right in all labels: it ended its job as the best of all."""
    scores, y = drawn(classes)
    for spoiled in (torch.full_like(scores, torch.nan), scores.index_fill(0, torch.tensor([7]), torch.nan)):
        assert np.isnan(measured(name, spoiled, y))
    y = y.index_fill(0, torch.tensor([7]), -100)
    defined = measured(name, scores, y)
    assert measured(name, scores.index_fill(0, torch.tensor([7]), torch.nan), y) == defined, "it counts for nothing"


def test_infinite_logits_are_ties_at_an_end() -> None:
    y = torch.tensor([0, 1, 0, 1, 1])
    logit = torch.tensor([torch.inf, torch.inf, -torch.inf, 0.0, -torch.inf])
    expected = sklearn_metrics.roc_auc_score(y, logit.clamp(-9, 9))
    assert measured("auc", logit, y) == pytest.approx(expected)


class Rows:
    """2,500 rows of five numbers, and a model with dropout: three passes of an evaluation."""

    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2500, 5, generator=generator)
    y = (x[:, 0] + torch.randn(2500, generator=generator) > 1.3).long()

    @staticmethod
    def model() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 2))

    @classmethod
    def arrays(cls) -> dict[str, np.ndarray]:
        return {"x": cls.x.numpy(), "y": cls.y.numpy()}

    @classmethod
    def publish(cls, asked: dict[str, metrics.Metric]) -> Published:
        compute = partial(metrics.compute_metrics, asked)
        return export_module(cls.model(), nn.CrossEntropyLoss(), cls.arrays(), metrics=compute)


def spread(answer: Tensor, y: Tensor) -> Tensor:
    """An own metric that no mean over batches gives."""
    return answer.argmax(1).eq(y).float().std()


def test_a_metrics_document_is_of_all_rows_and_no_mean_over_batches() -> None:
    made = Rows.publish({"auc": metrics.load_metric("auc"), "spread": spread})
    document = Program(parse_document(made.metrics or b""))
    whole = measure(document, made.parameters, Rows.arrays())
    module = Rows.model().eval()
    answer = module(Rows.x).detach()
    expected = sklearn_metrics.roc_auc_score(Rows.y, answer.softmax(1)[:, 1])
    assert whole == pytest.approx({"auc": expected, "spread": float(spread(answer, Rows.y))}, rel=1e-5)
    parts = [slice(0, 1024), slice(1024, 2048), slice(2048, 2500)]
    cut = [{name: array[part] for name, array in Rows.arrays().items()} for part in parts]
    each = [measure(document, made.parameters, rows)["auc"] for rows in cut]
    assert abs(float(np.mean(each)) - expected) > 1e-4, "the mistaken twin: a mean over the evaluation's passes"
    means = evaluate(Program(parse_document(made.evaluation)), made.parameters, Rows.arrays())
    assert set(means.values) == {"accuracy"}, "the evaluation's own document stays as it is"


def test_sums_of_an_own_loss_may_be_named_in_any_order() -> None:
    def loss(answer: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        off = answer.argmax(1).ne(y)
        return nn.functional.cross_entropy(answer, y), {"wrong": off.sum(), "right": off.logical_not().sum()}

    made = export_module(Rows.model(), loss, Rows.arrays())
    means = evaluate(Program(parse_document(made.evaluation)), made.parameters, Rows.arrays())
    assert means.values["wrong"] + means.values["right"] == pytest.approx(1.0)
    off = Rows.model().eval()(Rows.x).argmax(1).ne(Rows.y).float().mean()
    assert means.values["wrong"] == pytest.approx(float(off))


def of_whole_classes(answer: Tensor, y: Tensor) -> Tensor:
    return answer.argmax(1).eq(y).float()


def no_tensor(answer: Tensor, y: Tensor) -> Any:
    return 0.5


def with_own_tensor(answer: Tensor, y: Tensor) -> Tensor:
    return (answer * torch.tensor([1.0, 2.0])).mean() + y.float().mean()


def by_mask(answer: Tensor, y: Tensor) -> Tensor:
    return answer[y == 1].mean()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (of_whole_classes, r"metrics: own gives a tensor of \(300,\): return a tensor of one number"),
        (no_tensor, "metrics: own gives a float: return a tensor of one number"),
    ],
)
def test_a_function_that_gives_no_number_is_refused(metric: metrics.Metric, said: str) -> None:
    with pytest.raises(Refused, match=said):
        metrics.compute_metrics({"own": metric}, *drawn(2))


@pytest.mark.parametrize(
    ("metric", "said"),
    leave_to_full(
        [
            (with_own_tensor, r"a metric brings a tensor of shape \[2\].*make it inside the metric"),
            (by_mask, r"torch\.where"),
        ]
    ),
)
def test_a_function_that_is_no_document_is_refused(metric: metrics.Metric, said: str) -> None:
    with pytest.raises(DocumentRefused, match=said):
        Rows.publish({"own": metric})


def test_ready_made_metrics_are_refused_for_other_answers() -> None:
    with pytest.raises(Refused, match="there is no metric 'acu': choose one of accuracy, auc, f1"):
        metrics.load_metric("acu")
    with pytest.raises(Refused, match="there is no metric 'top0'"):
        metrics.load_metric("top0")
    with pytest.raises(Refused, match="auc takes at most 100 classes, not 101"):
        measured("auc", torch.randn(4, 101), torch.arange(4))
    with pytest.raises(Refused, match=r"the answer has \[3, 7\] numbers a row and y \[2\]"):
        measured("f1", torch.randn(4, 3, 7), torch.zeros(4, 2))
    with pytest.raises(Refused, match="no tensor of scores"):
        measured("f1", torch.arange(4), torch.arange(4))


MISTAKES: list[tuple[Callable[[], Measuring], bool, bool, str]] = [
    (lambda: Measuring(metrics="auc"), False, True, r"metrics: give a list, such as \['auc'\]"),
    (lambda: Measuring(metrics=[lambda answer, y: answer[y]]), False, True, "a function without a name of its own"),
    (lambda: Measuring(metrics=[3]), False, True, "a int is no metric"),  # type: ignore[list-item]
    (lambda: Measuring(metrics=["auc"]), False, False, r"nothing is held out to measure on: give validation=\(x, y\)"),
    (lambda: Measuring(stop="auc > 0.9"), False, False, "nothing is held out"),
    (lambda: Measuring(validation=(Rows.x, Rows.y)), True, True, "a private job is measured on its own dataset"),
]


@pytest.mark.parametrize(("wanted", "private", "measures", "said"), MISTAKES)
def test_a_mistaken_argument_is_refused_in_a_sentence(
    wanted: Callable[[], Measuring], private: bool, measures: bool, said: str
) -> None:
    with pytest.raises(Refused, match=said):
        check_measured(wanted(), private, measures)
