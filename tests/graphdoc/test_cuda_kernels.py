"""Which work is declined on a CUDA card, without one: its own documentation is held against the table, uses by name."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.document.bound import compute_bound
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, next_token, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.operators import ALLOWED, cuda
from graphdoc.operators.cuda import MISSING
from tests.handmade import Raw, encoded, linear, node, tensor, value

NOT_IN_THE_LANGUAGE = {
    "torch.nn.FractionalMaxPool2d",
    "torch.nn.FractionalMaxPool3d",
    "torch.nn.MaxUnpool1d",
    "torch.nn.MaxUnpool2d",
    "torch.nn.MaxUnpool3d",
    "torch.nn.CTCLoss",
    "torch.nn.EmbeddingBag",
    "torch.Tensor.put_",
    "torch.histc",
    "torch.bincount",
    "torch.median",
    "torch.Tensor.resize_",
}
ONLY_IN_PYTHON = {"torch.nn.ReplicationPad"}
"""Entries of torch's list that it settles before the operator that a document names."""
SEEN_TO_WORK = {"torch.cumsum"}
"""Entries of torch's list that two cards computed to equal bits: 47 calls in deterministic mode, with gradients."""
SEEN_TO_THROW = {"torch.nn.MaxPool3d", "torch.nn.RNN, GRU and LSTM"}
"""Operators that a card refused under torch 2.11, outside this documentation's list."""


def documented() -> set[str]:
    """Returns the operators that throw by torch's documentation."""
    text = str(torch.use_deterministic_algorithms.__doc__)
    throwing = text.partition("operations will throw a")[2].partition("In addition")[0]
    return set(re.findall(r"^ {8}\* :\w+:`([\w.]+)`", throwing, re.MULTILINE))


def test_the_table_has_exactly_torch_s_documented_kernels() -> None:
    ours = {one.documented for several in MISSING.values() for one in several}
    assert len(documented()) > 20
    assert all(any(name.startswith(one) for name in documented()) for one in ours - ONLY_IN_PYTHON - SEEN_TO_THROW)
    unsaid = {name for name in documented() if not any(name.startswith(one) for one in ours)}
    assert unsaid == NOT_IN_THE_LANGUAGE | SEEN_TO_WORK
    assert set(MISSING) <= set(ALLOWED)


def lacking(*nodes: Raw) -> str:
    """Of these nodes: 1 is data, 2 labels, and 3 floats [rows, 2, 6, 6] that depend on a parameter."""
    last = nodes[-1]["out"][0]
    inputs = [
        tensor("param", "w", [1, 2, 6, 6], grad=True),
        tensor("data", "x", ["rows", 2, 6, 6]),
        tensor("data", "y", ["rows", 6, 6], "int64"),
    ]
    made = [node("mul.Tensor", [value(1), value(0)], 3), *nodes, node("mean.default", [value(last), None], last + 1)]
    document = {**linear(), "inputs": inputs, "nodes": made, "loss": last + 1}
    return compute_bound(Program(parse_document(encoded(document))), 4).only_on_cpu


def alone(op: str, *arguments: Any) -> list[Raw]:
    return [node(op, [value(3), *arguments], 4)]


def build_constant_part(op: str, *arguments: Any) -> list[Raw]:
    """Returns the operator on data, added to a value that depends on the parameter."""
    return [node(op, [value(1), *arguments], 4), node("mean.default", [value(4), None], 5),
            node("add.Tensor", [value(3), value(5), 1], 6)]  # fmt: skip


GRID = [node("creation.full", [[4, 6, 6, 2], 0.5, "float32"], 4),
        node("grid_sampler.default", [value(3), value(4), 0, 0, False], 5)]  # fmt: skip
INDEX = [node("full_like.default", [value(3), 0, "int64", None, None, None, None], 4)]
CUBES = [node("unsqueeze.default", [value(3), 1], 4)]

FOR_CPUS = {
    "adaptive pooling": alone("adaptive_avg_pool2d.default", [2, 2]),
    "adaptive pooling of lines": [
        *alone("flatten.using_ints", 2, 3),
        node("adaptive_avg_pool1d.default", [value(4), [2]], 5),
    ],
    "adaptive pooling of cubes": [*CUBES, node("adaptive_avg_pool3d.default", [value(4), [1, 2, 2]], 5)],
    "pooling of cubes": [
        *CUBES,
        node("avg_pool3d.default", [value(4), [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None], 5),
    ],
    "adaptive maximum": [
        node("adaptive_max_pool2d.default", [value(3), [2, 2]], 4, 5),
        node("neg.default", [value(4)], 6),
    ],
    "bilinear": alone("upsample_bilinear2d.vec", [9, 9], False, None),
    "bicubic": alone("upsample_bicubic2d.vec", [9, 9], False, None),
    "reflection": alone("pad.default", [1, 1, 1, 1], "reflect", None),
    "replication": alone("pad.default", [1, 1, 1, 1], "replicate", None),
    "scattered products": [*INDEX, node("scatter_reduce.two", [value(3), 0, value(4), value(3), "prod", True], 5)],
    "grid": GRID,
    "labels of places": alone("cross_entropy_loss.default", value(2), None, 1, -100, 0.0),
}
FOR_CARDS = {
    "sums of floats": alone("cumsum.default", 2, None),
    "sums of data": build_constant_part("cumsum.default", 2, None),
    "products": alone("cumprod.default", 2, None),
    "a mean over all places": alone("adaptive_avg_pool2d.default", [1, 1]),
    "a maximum": alone("max_pool2d.default", [2, 2], [2, 2], [0, 0], [1, 1], False),
    "nearest": alone("upsample_nearest2d.vec", [9, 9], None),
    "zeros around": alone("pad.default", [1, 1, 1, 1], "constant", 0.0),
    "a circle": alone("pad.default", [1, 1, 1, 1], "circular", None),
    "products of data": build_constant_part("cumprod.default", 2, None),
    "pooling of data": build_constant_part("adaptive_avg_pool2d.default", [2, 2]),
    "scattered means": [*INDEX, node("scatter_reduce.two", [value(3), 0, value(4), value(3), "mean", True], 5)],
    "sums of integers": [
        node("cumsum.default", [value(2), 1, None], 4),
        node("unsqueeze.default", [value(4), 1], 5),
        node("add.Tensor", [value(3), value(5), 1], 6),
    ],
    "labels of places, each": alone("cross_entropy_loss.default", value(2), None, 0, -100, 0.0),
}


@pytest.mark.parametrize("name", FOR_CPUS)
def test_work_without_a_deterministic_kernel_on_cards_is_named(name: str) -> None:
    assert "no deterministic CUDA kernel for torch." in lacking(*FOR_CPUS[name])


@pytest.mark.parametrize("name", FOR_CARDS)
def test_other_work_is_for_cards_too(name: str) -> None:
    assert lacking(*FOR_CARDS[name]) == ""


CUBES_POOLED = [*CUBES, node("max_pool3d.default", [value(4), [2, 2, 2], [1, 1, 1], [1, 1, 1], [1, 1, 1], False], 5)]


@pytest.mark.parametrize("throws", [True, False])
def test_a_maximum_of_cubes_is_for_cards_where_torch_documents_a_kernel(
    throws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cuda.is_documented_as_throwing("torch.nn.AvgPool3d")
    assert not cuda.is_documented_as_throwing("torch.nn.Linear")
    assert lacking(*CUBES_POOLED) == ("" if not cuda.is_documented_as_throwing("torch.nn.MaxPool3d") else MAX_POOL)
    monkeypatch.setattr(cuda, "is_documented_as_throwing", lambda name: throws and name == "torch.nn.MaxPool3d")
    assert lacking(*CUBES_POOLED) == (MAX_POOL if throws else "")


MAX_POOL = "max_pool3d.default: torch has no deterministic CUDA kernel for torch.nn.MaxPool3d"


class Recurrence(nn.Module):
    """A recurrence, frozen or not, before a layer that trains; `behind` has a layer that trains before it, too."""

    def __init__(self, kind: type[nn.RNNBase], behind: bool) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3) if behind else nn.Identity()
        self.recurrence, self.last = kind(3, 4, batch_first=True), nn.Linear(4, 5)
        self.recurrence.requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        outputs: Tensor = self.recurrence(self.first(rows))[0]
        scores: Tensor = self.last(outputs[:, -1])
        return scores


@pytest.mark.parametrize(
    ("kind", "behind", "training"),
    [(nn.RNN, True, False), (nn.GRU, True, False), (nn.GRU, True, True), (nn.GRU, False, False)],
)
def test_a_recurrence_outside_training_mode_is_differentiated_by_processors_alone(
    kind: type[nn.RNNBase], behind: bool, training: bool
) -> None:
    """cuDNN raises "RNN backward can only be called in training mode"; no gradient passes a frozen first one."""
    module = Recurrence(kind, behind)
    module.recurrence.train(training)
    made = publish_module(module, compute_classification_loss, (torch.randn(4, 6, 3), torch.arange(4)))
    said = compute_bound(Program(parse_document(made.document)), 4).only_on_cpu
    assert ("only in training mode cuDNN differentiates torch.nn.RNN" in said) is (behind and not training)


def places(logits: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return functional.cross_entropy(logits.transpose(1, 2), target), {}


def test_labels_for_every_place_are_for_cards_when_places_are_rows() -> None:
    words = torch.arange(12).reshape(3, 4) % 5
    found = [publish_module(nn.Embedding(5, 5), loss, (words, words)) for loss in (places, next_token)]
    said = [compute_bound(Program(parse_document(made.document)), 3).only_on_cpu for made in found]
    assert "torch.nn.NLLLoss" in said[0]
    assert said[1] == ""
