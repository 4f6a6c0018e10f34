"""A document's cost is known before it is run, and a too costly one is refused without being run."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from graphdoc.cost import pass_sizes
from graphdoc.document.bound import compute_bound
from graphdoc.document.interpret import Program
from graphdoc.document.meter import BACKWARD, Limits
from graphdoc.document.schema import parse_document
from graphdoc.document.shape_cache import ShapeCache
from graphdoc.errors import DocumentRefused
from tests.graphdoc.test_document_vectors import DOCUMENTS
from tests.handmade import Raw, encoded, linear, node, tensor, value, with_nodes
from tests.lanes import leave_to_full


def program(document: Raw) -> Program:
    return Program(parse_document(encoded(document)))


def layers(width: int, depth: int) -> Raw:
    """`depth` square layers of this width over the data."""
    inputs = [tensor("param", f"w{number}", [width, width], grad=True) for number in range(depth)]
    nodes = [
        node("linear.default", [value(depth + number), value(number), None], depth + number + 1)
        for number in range(depth)
    ]
    loss = node("mean.default", [value(2 * depth), None], 2 * depth + 1)
    return {
        **linear(),
        "inputs": [*inputs, tensor("data", "x", ["rows", width])],
        "nodes": [*nodes, loss],
        "loss": 2 * depth + 1,
    }


def test_operations_are_those_of_torch_s_own_counter_and_a_little_more() -> None:
    rows, width, depth = 32, 64, 3
    ours = compute_bound(program(layers(width, depth)), rows).operations
    weights = [torch.randn(width, width, requires_grad=True) for _ in range(depth)]
    hidden = torch.randn(rows, width)
    with FlopCounterMode(display=False) as counter:
        for weight in weights:
            hidden = torch.nn.functional.linear(hidden, weight)
        torch.autograd.grad(hidden.mean(), weights)
    assert counter.get_total_flops() <= ours <= 1.3 * counter.get_total_flops()
    assert ours >= (1 + BACKWARD) * depth * 2 * rows * width * width


def test_the_peak_holds_state_data_intermediates_and_gradients() -> None:
    rows, width, depth = 100, 64, 4
    peak = compute_bound(program(layers(width, depth)), rows).peak_bytes
    state, activations = 4 * depth * width * width, 4 * (depth + 1) * rows * width
    assert state + activations <= peak <= 2 * state + 2 * activations


def test_values_are_freed_after_their_last_reader() -> None:
    relus = [node("relu.default", [value(1 if number == 0 else 2 + number)], 3 + number) for number in range(50)]
    document = with_nodes(*relus)
    document["inputs"][0]["grad"] = False
    peak = compute_bound(program(document), 1000).peak_bytes
    assert peak < 8 * 1000 * 3 * 4


def test_pooling_over_a_large_window_is_not_free() -> None:
    document = linear()
    document["inputs"][1]["shape"] = ["rows", 1, 1025, 1025]
    arguments = [value(1), [513, 513], [1, 1], [0, 0], False, True, None]
    document["nodes"] = [node("avg_pool2d.default", arguments, 3), node("mean.default", [value(3), None], 4)]
    document["inputs"][0]["grad"] = False
    assert compute_bound(program(document), 1).operations > 513**4


def test_a_slice_costs_its_whole_base_since_its_gradient_does() -> None:
    slices = [node("slice.Tensor", [value(1), 1, 0, 1, 1], 3 + number) for number in range(100)]
    few, many = (compute_bound(program(with_nodes(*slices[:count])), 1000).operations for count in (1, 100))
    assert many - few >= 99 * (1 + BACKWARD) * 3 * 1000


def test_cost_grows_with_the_rows() -> None:
    few, many = (compute_bound(program(linear()), rows) for rows in (10, 1000))
    assert 90 < many.operations / few.operations <= 100
    assert few.rows == 10


def test_the_limits_hold() -> None:
    wide = program(layers(4096, 3))
    with pytest.raises(DocumentRefused, match="operations"):
        compute_bound(wide, 10**6, Limits(operations=10**12))
    with pytest.raises(DocumentRefused, match="bytes at once"):
        compute_bound(wide, 10**6, Limits(peak_bytes=2**30))


def test_the_limit_on_bytes_holds_in_the_backward_pass() -> None:
    wide = program(layers(1024, 8))
    peak = compute_bound(wide, 4).peak_bytes
    assert compute_bound(wide, 4, Limits(peak_bytes=peak)).peak_bytes == peak
    with pytest.raises(DocumentRefused, match="bytes at once"):
        compute_bound(wide, 4, Limits(peak_bytes=peak - 1))


def squarings(times: int) -> Raw:
    """The rows, squared this often."""
    size = node("integer.size", [value(1), 0], 3)
    chain = [node("integer.mul", [value(3 + number)] * 2, 4 + number) for number in range(times)]
    return with_nodes(size, *chain)


def test_squaring_an_integer_twenty_five_times_is_refused_at_the_cap() -> None:
    with pytest.raises(DocumentRefused, match="integer beyond"):
        compute_bound(program(squarings(25)), 1000)
    assert compute_bound(program(squarings(2)), 1000).rows == 1000


BOMBS: dict[str, list[Raw]] = {
    "expansion": [
        node("unsqueeze.default", [value(1), 0], 3),
        node("expand.default", [value(3), [2**38, 1000, 3], False], 4),
        node("clone.default", [value(4), "contiguous_format"], 5),
    ],
    "padding": [node("constant_pad_nd.default", [value(1), [2**39, 2**39], 0.0], 3)],
    "doubling": [
        node("cat.default", [[value(2 + number if number else 1)] * 2, 0], 3 + number) for number in range(45)
    ],
    "an overflowing shape": [
        node("unsqueeze.default", [value(1), 0], 3),
        node("expand.default", [value(3), [2**40, 2**40, 2**40, 1000, 3], False], 4),
        node("clone.default", [value(4), "contiguous_format"], 5),
    ],
    "division by zero": [node("integer.floordiv", [1, 0], 3)],
    "shapes that do not fit": [node("linear.default", [value(1), value(2), None], 3)],
    "a kernel of nothing": [node("max_pool1d.default", [value(1), [0], [1], [0], [1], False], 3)],
    "groups of nothing": [node("conv1d.default", [value(1), value(0), None, [1], [0], [1], 0], 3)],
    "a certain dropout": [node("dropout.hash", [value(1), 1.0, 0], 3)],
    "too many parts": [node("split.Tensor", [value(1), 1, 0], 3, 4)],
    "a dimension that is not there": [node("integer.size", [value(1), 5], 3)],
    "an index that is not there": [node("select.int", [value(1), 1, 77], 3)],
}


def test_honest_nodes_have_a_bound() -> None:
    assert compute_bound(program(with_nodes(node("relu.default", [value(1)], 3))), 1000).operations > 0


@pytest.mark.parametrize("nodes", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_without_being_run(nodes: list[Raw]) -> None:
    with pytest.raises(DocumentRefused):
        compute_bound(program(with_nodes(*nodes)), 1000)


OUTPUTS: dict[str, Raw] = {
    "a loss of many numbers": {**linear(), "loss": 3},
    "a loss of integers": {
        **with_nodes(node("sum.default", [value(1), "int64"], 3)),
        "loss": 3,
    },
    "a loss of no parameter": {**linear(), "nodes": [node("mse_loss.default", [value(1), value(1), 1], 3)], "loss": 3},
    "a metric of many numbers": {**linear(), "metrics": {"accuracy": 3}},
}


@pytest.mark.parametrize("document", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_outputs_of_another_shape_are_refused(document: Raw) -> None:
    with pytest.raises(DocumentRefused):
        compute_bound(program(document), 4)


def test_an_update_of_another_shape_is_refused() -> None:
    document = linear()
    document["inputs"].insert(1, tensor("buffer", "mean", [3]))
    document["nodes"] = [
        node("linear.default", [value(2), value(0), None], 4),
        node("mse_loss.default", [value(4), value(3), 1], 5),
    ]
    honest = {**document, "loss": 5, "updates": {"mean": 1}}
    compute_bound(program(honest), 4)
    with pytest.raises(DocumentRefused, match="update of mean"):
        compute_bound(program({**honest, "updates": {"mean": 4}}), 4)


@pytest.mark.parametrize("path", leave_to_full(DOCUMENTS), ids=lambda path: path.stem)
def test_cached_shapes_equal_computed_ones(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = parse_document(path.read_bytes())
    found = [compute_bound(Program(document), 3, training=training) for training in (True, False)]
    monkeypatch.setattr(ShapeCache, "call_cached", lambda _cache, func, args, kwargs: func(*args, **kwargs))
    assert found == [compute_bound(Program(document), 3, training=training) for training in (True, False)]


def test_a_call_is_worked_out_once_and_again_where_anything_differs() -> None:
    cache, made = ShapeCache(), torch.ops.aten.mul.Tensor
    one, other = torch.empty(4, 3, device="meta"), torch.empty(3, 4, device="meta").t()
    for left, right in (
        (one, one),
        (one, other),
        (other, other),
        (one, 2),
        (one, 2.5),
        (one.long(), 2),
        (one.long(), 2.5),
    ):
        for _ in range(2):
            found, expected = cache.call_cached(made, (left, right), {}), made(left, right)
            assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
    view = torch.ops.aten._unsafe_view.default
    for _ in range(2):
        assert cache.call_cached(view, (one, [12]), {}).untyped_storage()._cdata == one.untyped_storage()._cdata


@pytest.mark.parametrize(("rows", "sizes"), [(10, (4, 2)), (8, (4,)), (3, (3,))])
def test_passes_are_of_the_largest_size_and_of_what_is_left(rows: int, sizes: tuple[int, ...]) -> None:
    assert pass_sizes(rows, 4) == sizes
