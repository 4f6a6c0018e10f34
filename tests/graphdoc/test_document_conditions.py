"""Reads, writes and divisions beyond a kernel's own are refused, on shapes alone and on tensors."""

from typing import Any

import pytest
import torch

from graphdoc.conditions import FAMILIES, condition_of, recurrent
from graphdoc.document.bound import compute_bound
from graphdoc.document.calls import OPERATORS
from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.plans import hold_to, read_result_form
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused
from graphdoc.operators import ALLOWED
from tests.handmade import encoded, node, tensor, value

ROWS = 2
SEED = bytes(32)


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def program(inputs: list[Any], nodes: list[Any], last: int) -> Program:
    """The mean of value `last` and of the parameter `w` is the loss."""
    count = 1 + len(inputs) + sum(len(entry["out"]) for entry in nodes)
    nodes = [
        *nodes,
        node("mean.default", [value(last), None], count),
        node("mean.default", [value(0), None], count + 1),
        node("add.Tensor", [value(count), value(count + 1), 1], count + 2),
    ]
    inputs = [tensor("param", "w", [1], grad=True), *inputs]
    head = {"format": "gradgraph/1", "sizes": {}, "inputs": inputs, "metrics": {}, "updates": {}}
    return Program(parse_document(encoded(head | {"nodes": nodes, "loss": count + 2})))


def filled(made: Program) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    state = {entry.name: ones(*entry.shape) for entry in made.document.inputs if entry.kind != "data"}
    data = {entry.name: ones(ROWS, *entry.shape).to(getattr(torch, entry.dtype)) for entry in made.document.of("data")}
    return state, data


def lstm(bias: int = 8, rows: int | str = ROWS, weights: int = 4) -> Program:
    """Two hidden values over three places of two rows (rows first)."""
    inputs = [
        tensor("data", "x", ["rows", 3, 2]),
        tensor("const", "h", [1, ROWS, 2]),
        tensor("const", "c", [1, rows, 2]),
        tensor("const", "wi", [8, 2]),
        tensor("const", "wh", [8, 2]),
        tensor("const", "b", [bias]),
    ]
    parts = [value(4), value(5), value(6), value(6)][:weights]
    arguments = [value(1), [value(2), value(3)], parts, True, 1, 0.0, True, False, True]
    return program(inputs, [node("lstm.input", arguments, 7, 8, 9)], 7)


def gru(state: list[int]) -> Program:
    inputs = [tensor("data", "x", ["rows", 3, 2]), tensor("const", "h", state)]
    inputs += [tensor("const", name, [6, 2]) for name in ("wi", "wh")]
    arguments = [value(1), value(2), [value(3), value(4)], False, 1, 0.0, True, False, True]
    return program(inputs, [node("gru.input", arguments, 5, 6)], 5)


def padded(sides: list[int], mode: str) -> Program:
    inputs = [tensor("data", "x", ["rows", 2, 6])]
    return program(inputs, [node("pad.default", [value(1), sides, mode, None], 2)], 2)


def soft_margin(reduction: int) -> Program:
    inputs = [tensor("data", "x", ["rows", 6])]
    nodes = [
        node("slice.Tensor", [value(1), 1, 0, 0, 1], 2),
        node("soft_margin_loss.default", [value(2), value(2), reduction], 3),
    ]
    return program(inputs, nodes, 3)


def pooled(dilation: int) -> Program:
    """Maxima over windows of three places of one, beginning one before it."""
    inputs = [tensor("data", "x", ["rows", 1])]
    arguments = [value(3), [3], [3], [1], [dilation], True]
    nodes = [
        node("mul.Tensor", [value(1), value(0)], 2),
        node("unsqueeze.default", [value(2), 1], 3),
        node("max_pool1d.default", arguments, 4),
    ]
    return program(inputs, nodes, 4)


def cut(key: str, parts: int) -> Program:
    return program([tensor("data", "x", ["rows"])], [node(key, [value(1), parts, 0], 2, 3)], 2)


def strided(key: str, stride: int) -> Program:
    """A convolution of kernels of two; beyond a stride of some 2**16 its backward pass ended the process."""
    inputs = [tensor("data", "x", ["rows", 1, 70]), tensor("const", "k", [1, 1, 2])]
    sides = [[0], [1], 1] if key == "conv1d.default" else [[0], [0], 1, [1]]
    return program(inputs, [node(key, [value(1), value(2), None, [stride], *sides], 3)], 3)


def folded(*size: int) -> Program:
    """Nine windows of two by two, summed up in an image of this size."""
    inputs = [tensor("data", "x", ["rows", 4, 9])]
    return program(inputs, [node("col2im.default", [value(1), [*size], [2, 2], [1, 1], [0, 0], [1, 1]], 2)], 2)


HOSTILE = {
    "a convolution that steps over everything": lambda: strided("conv1d.default", 2**16),
    "a transposed one": lambda: strided("conv_transpose1d.default", 2**16),
    "a maximum over a window of nothing": lambda: pooled(2),
    "two milliard sections": lambda: cut("tensor_split.sections", 2**31),
    "two milliard chunks": lambda: cut("chunk.default", 2**31),
    "parts of no length": lambda: cut("split.Tensor", 0),
    "a bias of one element": lambda: lstm(bias=1),
    "a cell state of another batch": lambda: lstm(rows=1),
    "no weights": lambda: lstm(weights=0),
    "a state of four dimensions": lambda: gru([1, 1, ROWS, 2]),
    "a border that goes round, cut on one side": lambda: padded([-1, 4], "circular"),
    "a border longer than its image": lambda: padded([7, 0], "circular"),
    "a loss by a reduction that is none": lambda: soft_margin(7),
    "an image without a width": lambda: folded(4),
    "an image of no height": lambda: folded(0, 4),
}
HONEST = {
    "convolution": lambda: strided("conv1d.default", 1024),
    "transposed convolution": lambda: strided("conv_transpose1d.default", 1024),
    "maximum": lambda: pooled(1),
    "sections": lambda: cut("tensor_split.sections", 2),
    "chunks": lambda: cut("chunk.default", 2),
    "parts": lambda: cut("split.Tensor", 1),
    "lstm": lstm,
    "gru": lambda: gru([1, ROWS, 2]),
    "circular": lambda: padded([1, 4], "circular"),
    "constant": lambda: padded([-1, 4], "constant"),
    "a loss of nothing": lambda: soft_margin(2),
    "image": lambda: folded(4, 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_by_the_bound_and_by_the_run(name: str) -> None:
    made = HOSTILE[name]()
    with pytest.raises(DocumentRefused):
        compute_bound(made, ROWS)
    with pytest.raises(DocumentRefused):
        made.run(*filled(made), SEED)


@pytest.mark.parametrize("size", [(4,), (0, 4)])
def test_an_image_that_is_none_is_refused_by_its_size(size: tuple[int, ...]) -> None:
    with pytest.raises(DocumentRefused, match="its size is not 2 numbers from 1 on"):
        compute_bound(folded(*size), ROWS)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_document_is_bounded_and_run(name: str) -> None:
    made = HONEST[name]()
    assert compute_bound(made, ROWS).operations > 0
    assert made.run(*filled(made), SEED).loss.dim() == 0


DIVISIONS = (
    "div.Tensor_mode",
    "div.Scalar_mode",
    "floor_divide.default",
    "remainder.Tensor",
    "remainder.Scalar",
    "fmod.Scalar",
)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("key", DIVISIONS)
def test_the_least_integer_is_not_divided_by_minus_one(key: str, dtype: torch.dtype) -> None:
    condition = condition_of(key)
    least = torch.tensor([3, torch.iinfo(dtype).min], dtype=dtype)
    mode = ["trunc"] if "mode" in key else []
    below: Any = -1 if "Scalar" in key else torch.tensor([2, -1], dtype=dtype)
    assert condition is not None
    with pytest.raises(DocumentRefused, match="least integer"):
        condition([least, below, *mode])
    with pytest.raises(DocumentRefused, match="by zero"):
        condition([least, below * 0, *mode])
    condition([least + 1, below, *mode])
    condition([least.float(), below, *mode])
    condition([least.to("meta"), below if isinstance(below, int) else below.to("meta"), *mode])
    assert OPERATORS[key].condition is condition


def test_every_operator_states_its_condition_once_and_an_unstated_one_takes_nothing() -> None:
    stated = [key for family in FAMILIES for key in family.CONDITIONS]
    assert sorted(stated) == sorted(ALLOWED)
    with pytest.raises(DocumentRefused, match="not stated"):
        condition_of("another.default")([])  # type: ignore[misc]


LAYERS = ((1, False, False, True), (2, True, True, False), (3, False, True, True))


@pytest.mark.parametrize("key", sorted(recurrent.SEQUENCES))
@pytest.mark.parametrize(("layers", "both", "rows_first", "biases"), LAYERS)
def test_a_recurrence_s_shapes_are_torch_s(key: str, layers: int, both: bool, rows_first: bool, biases: bool) -> None:
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(key.partition(".")[0], torch.nn.RNN)
    made = kind(3, 5, layers, bidirectional=both, batch_first=rows_first, bias=biases)
    state = ones(layers * (1 + both), 2 if rows_first else 4, 5)
    states = [state, state] if key.startswith("lstm") else state
    options = [biases, layers, 0.0, True, both, rows_first]
    _are_torch_s(key, [ones(2, 4, 3), states, list(made.parameters()), *options])


def _are_torch_s(key: str, arguments: list[Any]) -> None:
    condition = OPERATORS[key].condition
    assert condition is not None
    condition(arguments)
    results = OPERATORS[key].call(*arguments)
    assert recurrent.compute_recurrent_shapes(arguments) == tuple(tuple(result.shape) for result in results)


def test_an_lstm_with_a_projection_is_taken() -> None:
    made = torch.nn.LSTM(3, 5, 2, proj_size=4, bidirectional=True)
    states = [ones(4, 2, 4), ones(4, 2, 5)]
    _are_torch_s("lstm.input", [ones(7, 2, 3), states, list(made.parameters()), True, 2, 0.0, True, True, False])


def test_a_value_unlike_its_plan_is_refused() -> None:
    plan = [[read_result_form(ones(2, 3))], [read_result_form(7)]]
    hold_to(plan, 0, [ones(2, 3)])
    hold_to(plan, 1, [7])
    for place, other in ((0, ones(3, 2)), (0, ones(2, 3).double()), (1, 8)):
        with pytest.raises(DocumentRefused, match="shape and type"):
            hold_to(plan, place, [other])


def test_a_value_of_very_many_dimensions_is_refused() -> None:
    inputs = [tensor("data", "x", ["rows"])]
    nodes = [node("unsqueeze.default", [value(number), 0], number + 1) for number in range(1, 40)]
    with pytest.raises(DocumentRefused, match="dimensions"):
        compute_bound(program(inputs, nodes, 40), ROWS)


def test_a_gradient_that_torch_keeps_without_memory_is_zeros() -> None:
    leaf = ones(2).requires_grad_()
    (gradient,) = compute_gradients(torch.sgn(leaf).sum(), [leaf])
    assert gradient.numpy().tolist() == [0.0, 0.0]
