"""A bound holds at every size that a batch may have, and is known in bounded steps: of a recurrence by a formula."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphdoc.document.bound import admit_batch, compute_bound, compute_exact_bound
from graphdoc.document.calls import OperatorCall
from graphdoc.document.formulas import STAND_INS, by_formula
from graphdoc.document.graph import Document
from graphdoc.document.interpret import COMPUTED, Program, Way
from graphdoc.document.meter import Limits
from graphdoc.document.scans import every_step
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused
from tests.handmade import Raw, encoded, linear, node, tensor, value, with_nodes

LONGEST = 64


def program(document: Raw) -> Program:
    return Program(parse_document(encoded(document)))


def at(document: Raw, rows: int, length: int) -> Any:
    return compute_exact_bound(program(document), rows, {"length": length}, Limits())


def of_length(*nodes: Raw, last: int) -> Raw:
    """Returns a document whose data `x` is rows x length; value 2 is its length, the loss is the mean of `last`."""
    inputs = [tensor("param", "w", [1], grad=True), tensor("data", "x", ["rows", "length"])]
    size = node("integer.size", [value(1), 1], 2)
    scaled = node("mul.Tensor", [value(last), value(0)], last + 1)
    loss = node("mean.default", [value(last + 1), None], last + 2)
    shape = {"sizes": {"length": LONGEST}, "inputs": inputs, "nodes": [size, *nodes, scaled, loss], "loss": last + 2}
    return {**linear(), **shape}


SHRINKING: dict[str, Raw] = {
    "a range that ends at the largest": of_length(
        node("integer.mul", [value(2), 1000], 3),
        node("creation.arange", [value(3), LONGEST * 1000, 1, "float32"], 4),
        last=4,
    ),
    "padding to more than the largest": of_length(
        node("integer.sub", [LONGEST, value(2)], 3),
        node("integer.mul", [value(3), 1000], 4),
        node("constant_pad_nd.default", [value(1), [0, value(4)], 0.0], 5),
        last=5,
    ),
    "as many as one divided by the other": of_length(
        node("integer.floordiv", [100_000, value(2)], 3),
        node("creation.full", [[value(3)], 1.0, "float32"], 4),
        last=4,
    ),
}


@pytest.mark.parametrize("name", SHRINKING)
def test_a_document_that_costs_more_at_a_smaller_size_is_bounded_by_that_size(name: str) -> None:
    document = SHRINKING[name]
    found = compute_bound(program(document), 4)
    largest = at(document, 4, LONGEST)
    assert found.operations > 10 * largest.operations
    assert found.peak_bytes > 4 * largest.peak_bytes
    for length in range(1, LONGEST + 1):
        one = at(document, 4, length)
        assert (one.operations, one.peak_bytes) <= (found.operations, found.peak_bytes)


PEAK = 20


def peaked() -> Raw:
    """Returns a document that costs length times the rest of a middle size: neither end nor half is the most."""
    return of_length(
        node("integer.sub", [PEAK, value(2)], 3),
        node("integer.mul", [value(3), value(3)], 4),
        node("integer.sub", [400, value(4)], 5),
        node("integer.max", [value(5), 1], 6),
        node("integer.mul", [value(6), 100], 7),
        node("creation.full", [[value(7)], 1.0, "float32"], 8),
        last=8,
    )


def test_a_size_in_between_that_costs_more_is_refused_when_its_batch_comes() -> None:
    document = peaked()
    made = program(document)
    told = compute_bound(made, 4)
    limits = Limits(told.operations, told.peak_bytes)
    dearest = max(range(1, LONGEST + 1), key=lambda length: at(document, 4, length).operations)
    assert at(document, 4, dearest).operations > told.operations
    with pytest.raises(DocumentRefused, match=rf"a batch of 4 rows, length {dearest}: .*more than"):
        admit_batch(made, 4, {"length": dearest}, limits)
    admit_batch(made, 4, {"length": LONGEST}, limits)


INTEGERS = [f"integer.{name}" for name in ("add", "sub", "mul", "floordiv", "mod", "max", "min")]


@st.composite
def documents(draw: st.DrawFn) -> Raw:
    """Integers made from the length by a few operators, and a tensor of as many elements."""
    nodes, numbers = [], [value(2)]
    for place in range(draw(st.integers(1, 4))):
        operands = st.one_of(st.sampled_from(numbers), st.integers(-100, 100))
        nodes.append(node(draw(st.sampled_from(INTEGERS)), [draw(operands), draw(operands)], 3 + place))
        numbers.append(value(3 + place))
    last = 2 + len(nodes)
    nodes.append(node("integer.min", [value(last), 10_000], last + 1))
    made = {
        "full": node("creation.full", [[value(last + 1)], 1.0, "float32"], last + 2),
        "pad": node("constant_pad_nd.default", [value(1), [0, value(last + 1)], 0.0], last + 2),
        "slice": node("slice.Tensor", [value(1), 1, value(last + 1), None, 1], last + 2),
        "range": node("creation.arange", [value(last + 1), 10_000, 1, "float32"], last + 2),
    }
    return of_length(*nodes, draw(st.sampled_from(list(made.values()))), last=last + 2)


@given(documents(), st.integers(1, LONGEST), st.integers(1, 4))
def test_no_batch_costs_more_than_the_bound_and_is_run(document: Raw, length: int, rows: int) -> None:
    """At any size it costs no more than its bound, or is refused."""
    made = program(document)
    try:
        told = compute_bound(made, (4, rows))
        one = at(document, rows, length)
    except DocumentRefused:
        return
    limits = Limits(told.operations, told.peak_bytes)
    if one.operations <= told.operations and one.peak_bytes <= told.peak_bytes:
        admit_batch(made, rows, {"length": length}, limits)
    else:
        with pytest.raises(DocumentRefused, match="more than"):
            admit_batch(made, rows, {"length": length}, limits)


def recurrent(kind: str, places: int, width: int = 8) -> Raw:
    """One layer over rows x places x width."""
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[kind] * width
    shapes: dict[str, list[Any]] = {"a": [gates, width], "b": [gates, width], "c": [gates], "d": [gates]}
    inputs = [tensor("param", name, shape, grad=True) for name, shape in shapes.items()]
    inputs += [tensor("data", "x", ["rows", places, width])]
    size = node("integer.size", [value(4), 0], 5)
    start = node("creation.full", [[1, value(5), width], 0.0, "float32"], 6)
    states: Any = [value(6), value(6)] if kind == "lstm" else value(6)
    weights = [value(number) for number in range(4)]
    out = [7, 8, 9] if kind == "lstm" else [7, 8]
    cells = node(f"{kind}.input", [value(4), states, weights, True, 1, 0.0, True, False, True], *out)
    loss = node("mean.default", [value(7), None], out[-1] + 1)
    return {**linear(), "inputs": inputs, "nodes": [size, start, cells, loss], "loss": out[-1] + 1}


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_a_recurrence_is_bounded_by_a_formula_whatever_its_length(kind: str) -> None:
    short, long = (compute_bound(program(recurrent(kind, places)), 2) for places in (20, 20_000))
    assert 900 < long.operations / short.operations <= 1000
    assert long.peak_bytes > 100 * short.peak_bytes


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_a_recurrence_s_formula_gives_what_torch_gives(kind: str) -> None:
    document = parse_document(encoded(recurrent(kind, 5)))
    assert _shapes(document, Way(by_formula, every_step)) == _shapes(document, COMPUTED)


def _shapes(document: Document, way: Way) -> list[Any]:
    """The shape of every value of a run on meta tensors."""
    found: list[Any] = []
    made = {entry.name: torch.empty(entry.shape, device="meta") for entry in document.of("param")}
    data = {name: torch.empty(shape, device="meta") for name, (shape, _) in document.batch(3).items()}

    def watch(_operator: OperatorCall, _arguments: Sequence[Any], results: Sequence[Any], _times: int) -> None:
        found.extend(getattr(result, "shape", result) for result in results)

    Program(document).run(made, data, bytes(32), watch, way)
    return found


HANGS: dict[str, list[Raw]] = {
    "differences of differences": [node("diff.default", [value(1), 65_536, 0, None, None], 3)],
    "a rank of thousands": [node("view.default", [value(1), [1] * 4000 + [3000]], 3)],
    "one part for each of a billion": [
        node("unsqueeze.default", [value(1), 0], 3),
        node("expand.default", [value(3), [2**30, 1000, 3], False], 4),
        node("unbind.int", [value(4), 0], 5, 6),
    ],
    "a billion of single rows": [
        node("unsqueeze.default", [value(1), 0], 3),
        node("expand.default", [value(3), [2**30, 1000, 3], False], 4),
        node("split.Tensor", [value(4), 1, 0], 5, 6),
    ],
    "a billion chunks": [
        node("unsqueeze.default", [value(1), 0], 3),
        node("expand.default", [value(3), [2**30, 1000, 3], False], 4),
        node("chunk.default", [value(4), 2**30, 0], 5, 6),
    ],
}


@pytest.mark.parametrize("nodes", HANGS.values(), ids=HANGS.keys())
def test_a_document_too_long_to_bound_is_refused_after_a_number_of_steps(nodes: list[Raw]) -> None:
    with pytest.raises(DocumentRefused, match=r"too many steps|dimensions, more than|parts, more than"):
        compute_bound(program(with_nodes(*nodes)), 1000)


def test_differences_cost_as_many_times_as_they_are_taken() -> None:
    once, often = (
        compute_bound(program(with_nodes(node("diff.default", [value(1), times, 0, None, None], 3))), 1000).operations
        for times in (1, 20)
    )
    without = compute_bound(program(linear()), 1000).operations
    assert often - without >= 15 * (once - without)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_counts_as_fused_only_where_the_processor_fuses_it(dtype: torch.dtype, masked: bool) -> None:
    shape, attend = (2, 4, 32, 16), STAND_INS["scaled_dot_product_attention.default"]
    parts = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = torch.zeros(32, 32, dtype=dtype) if masked else None
    fused = torch._fused_sdp_choice(*parts, mask, 0.0, not masked)
    assert fused == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value
    there = [torch.empty_like(part, device="meta", requires_grad=True) for part in parts]
    hidden = None if mask is None else torch.empty_like(mask, device="meta")
    result = attend([*there, hidden, 0.0, not masked, None, False])
    assert type(result.grad_fn).__name__ == "_FormulaBackward"
    assert attend([*(part.transpose(2, 3) for part in there), None, 0.0, False, None, False]) is None
