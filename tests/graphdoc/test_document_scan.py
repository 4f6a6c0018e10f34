"""A loop written out becomes one scan of the same bits and cost; a scan that cannot be is refused in one sentence."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from graphdoc.document.bound import compute_bound
from graphdoc.document.graph import Scan
from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.ranges import find_input_ranges
from graphdoc.document.rolling import LEAST, roll_loops
from graphdoc.document.schema import parse_document
from graphdoc.document.sequences import OneCall
from graphdoc.errors import DocumentRefused
from graphdoc.figures import Bound, Range
from tests.handmade import Raw, encoded, linear, node, tensor, value
from tests.kit.torch_tests import TRACING
from tests.lanes import FULL, leave_to_full
from tests.loops import unrolled

pytestmark = TRACING
PLACES = 36


class Selective(nn.Module):
    """A selective state space, as Mamba's, with dropout of each answer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.entry, self.out, self.exit = nn.Linear(1, 4), nn.Linear(4, 3), nn.Linear(4, 4)
        self.rates, self.dropout = nn.Parameter(-torch.rand(4, 3)), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.entry(x.unsqueeze(-1))
        kept, out = (hidden.unsqueeze(-1) * self.rates).exp(), self.out(hidden)
        state, answers = torch.zeros_like(kept[:, 0]), []
        for place in range(x.shape[1]):
            state = kept[:, place] * state + hidden[:, place].unsqueeze(-1)
            answers.append(self.dropout((state * out[:, place].unsqueeze(1)).sum(-1)))
        return self.exit(torch.stack(answers, 1).mean(1))


class Cells(nn.Module):
    """A cell called for each place, read by slices, by `unbind`, or from the last place on."""

    def __init__(self, cell: nn.Module, read: str) -> None:
        super().__init__()
        self.cell, self.outer, self.read = cell, nn.Linear(5, 4), read

    def forward(self, x: Tensor) -> Tensor:
        state: Any = x.new_zeros(x.shape[0], 5)
        if isinstance(self.cell, nn.LSTMCell):
            state = (state, state)
        for part in self._parts(x):
            state = self.cell(part, state)
        return self.outer(state[0] if isinstance(state, tuple) else state)

    def _parts(self, x: Tensor) -> Iterator[Tensor]:
        if self.read == "unbind":
            return iter(x.unsqueeze(-1).unbind(1))
        places = range(x.shape[1]) if self.read == "forward" else reversed(range(x.shape[1]))
        return (x[:, place : place + 1] for place in places)


class Written(nn.Module):
    """Each place written into one tensor, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(1, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        found, state = x.new_zeros(x.shape[0], x.shape[1], 4), x.new_zeros(x.shape[0], 4)
        for place in range(x.shape[1]):
            state = torch.tanh(self.inner(x[:, place : place + 1]) + state)
            found[:, place] = state
        return self.outer(found.mean(1))


class Growing(nn.Module):
    """Each place looks back at all before it: shapes grow, so that no step is like another."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Linear(PLACES, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.stack([x[:, : place + 1].sum(1).tanh() for place in range(x.shape[1])], 1))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "GRU cell": lambda: Cells(nn.GRUCell(1, 5), "forward"),
    "selective state space": Selective,
    "with dropout": lambda: Selective(0.3),
    "GRU cell, backwards": lambda: Cells(nn.GRUCell(1, 5), "backwards"),
    "LSTM cell": lambda: Cells(nn.LSTMCell(1, 5), "forward"),
    "LSTM cell, unbound": lambda: Cells(nn.LSTMCell(1, 5), "unbind"),
    "written in place": Written,
}


@cache
def published(build: Callable[[], nn.Module]) -> tuple[Raw, dict[str, Any]]:
    """The training document, which publishing compares with the module bit by bit, and the state."""
    torch.manual_seed(0)
    answer = publish_module(build(), compute_classification_loss, (torch.randn(4, PLACES), torch.arange(4)))
    assert parse_document(answer.evaluation).nodes
    return json.loads(answer.document), answer.parameters


def answers(document: Raw, state: dict[str, Any], data: dict[str, Tensor]) -> list[bytes]:
    """The bits of the loss and of each gradient."""
    program = Program(parse_document(encoded(document)))
    leaves = {name: torch.tensor(array) for name, array in state.items()}
    for entry in program.document.trainable:
        leaves[entry.name].requires_grad_()
    results = program.run(leaves, data, bytes(32))
    found = compute_gradients(results.loss, [leaves[entry.name] for entry in program.document.trainable])
    return [one.detach().contiguous().numpy().tobytes() for one in (results.loss, *found)]


@pytest.mark.parametrize("name", leave_to_full(MODULES))
def test_a_loop_is_one_scan_of_the_module_s_bits(name: str) -> None:
    document, state = published(MODULES[name])
    scans = [node for node in document["nodes"] if node["op"] == "scan"]
    assert [scan["args"][0] for scan in scans] in ([PLACES], [PLACES - 1])
    assert len(document["nodes"]) < 60
    data = {"x": torch.randn(6, PLACES), "y": torch.arange(6) % 4}
    assert answers(document, state, data) == answers(unrolled(document), state, data)


@pytest.mark.parametrize("name", leave_to_full(MODULES))
def test_a_scan_costs_what_its_steps_cost_written_out(name: str) -> None:
    document, _ = published(MODULES[name])
    for training in (True, False):
        told, plain = (costs(one, 64, training) for one in (document, unrolled(document)))
        assert told.operations == plain.operations
        assert plain.peak_bytes <= told.peak_bytes <= 1.3 * plain.peak_bytes + 10**6


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_a_cell_is_one_call(kind: Callable[[int, int], nn.Module]) -> None:
    cell, state = kind(1, 5), torch.zeros(2, 5)
    given = (torch.zeros(2, 1), (state, state) if kind is nn.LSTMCell else state)
    with OneCall():
        traced = make_fx(partial(functional_call, cell), tracing_mode="fake")(dict(cell.named_parameters()), given)
    called = [node.target for node in traced.graph.nodes if isinstance(node.target, OpOverload)]
    assert [target.namespace for target in called] == ["graphdoc"]


def costs(document: Raw, rows: int, training: bool = True) -> Bound:
    return compute_bound(Program(parse_document(encoded(document))), rows, training=training)


@FULL
def test_steps_of_growing_shapes_stay_written_out() -> None:
    document, _ = published(Growing)
    assert document["format"] == "gradgraph/1"
    assert len(document["nodes"]) > 3 * PLACES


def test_few_steps_stay_written_out() -> None:
    assert roll_loops(unrolled(loop(LEAST - 1)), lambda _: 1)["format"] == "gradgraph/1"
    assert roll_loops(unrolled(loop(LEAST)), lambda _: 1) == loop(LEAST)


def loop(length: int = 64) -> Raw:
    """state = tanh(w * state + x[:, step]), from x[:, 0] on; the loss is the mean of all states."""
    body = [
        node("mul.Tensor", [value(0), value(1)], 4),
        node("select.int", [value(2), 1, value(3)], 5),
        node("add.Tensor", [value(4), value(5), 1], 6),
        node("tanh.default", [value(6)], 7),
    ]
    out = list(range(3, 3 + length))
    scan = {
        **node("scan", [length, [value(2)], [], [value(0), value(1)], [[0, 1]]], *out),
        "body": {"nodes": body, "carried": [7], "last": [], "every": [7]},
    }
    return {
        **linear(),
        "format": "gradgraph/2",
        "inputs": [tensor("param", "w", [5], grad=True), tensor("data", "x", ["rows", length, 5])],
        "nodes": [
            node("select.int", [value(1), 1, 0], 2),
            scan,
            node("stack.default", [[value(one) for one in out], 1], 3 + length),
            node("mean.default", [value(3 + length), None], 4 + length),
        ],
        "loss": 4 + length,
    }


def changed(path: list[Any], new: Any) -> Raw:
    """Returns `loop` with the value at this path of the scan replaced."""
    document = copy.deepcopy(loop())
    place: Any = document["nodes"][1]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return document


NESTED = loop(2)["nodes"][1]
UNREAD: dict[str, tuple[list[Any], Any, str]] = {
    "a length of 2^40": (["args", 0], 2**40, "its steps are not 1 to 100000"),
    "no steps": (["args", 0], 0, "its steps are not 1 to 100000"),
    "steps that are no number": (["args", 0], True, "its steps are not"),
    "more calls than are let by": (["args", 0], 99_999, "calls 399996 operators in 99999 steps"),
    "another length than its results": (["args", 0], 63, "it gives 63 values"),
    "a scan inside": (["body", "nodes", 3], NESTED, "a scan inside a scan"),
    "a body of nothing": (["body", "nodes"], [], "calls 0 operators"),
    "nodes that are none": (["body", "nodes"], {"0": 1}, "nodes are not a list"),
    "a node that is none": (["body", "nodes", 1], 7, "node 1 is not an object"),
    "an operator that is none": (["body", "nodes", 1, "op"], "system.default", "no operator 'system.default'"),
    "a value of the document in the body": (["body", "nodes", 0, "args", 0], value(40), "there is no value 40 yet"),
    "a value of a later node": (["body", "nodes", 0, "args", 0], value(7), "there is no value 7 yet"),
    "a counter as a size": (["body", "nodes", 1, "args", 1], value(3), "is not of kind int"),
    "a counter as a tensor": (["body", "nodes", 0, "args", 0], value(3), "is not of kind"),
    "a counter that is carried": (["body", "carried"], [3], "3 is not a tensor of the body"),
    "a value carried that is none": (["body", "carried"], [8], "8 is not a tensor of the body"),
    "a carry without a start": (["body", "carried"], [7, 7], "as many values are not carried on"),
    "a start without a carry": (["args", 1], [], "not"),
    "a start that is a number": (["args", 1], [3], "3 is not a tensor value"),
    "a start that comes later": (["args", 1], [value(5)], "there is no value 5 yet"),
    "a counter of floats": (["args", 4], [[0.0, 1]], "is not a counter"),
    "a counter without end": (["args", 4], [[0, 2**40]], "is not a counter"),
    "values given for some steps": (["args", 2], [[value(2)]], "not one value for each step"),
    "results that are another's": (["out"], [2, 3], "it gives 64 values"),
    "further arguments": (["args"], [64], "a scan has 5 arguments"),
    "a body without results": (["body"], {"nodes": []}, "the keys of a body are not"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_scan_that_makes_no_sense_is_not_read(name: str) -> None:
    path, new, words = UNREAD[name]
    with pytest.raises(DocumentRefused) as caught:
        parse_document(encoded(changed(path, new)))
    assert words in caught.value.detail, caught.value.detail
    assert "\n" not in caught.value.detail


def test_the_format_names_whether_a_document_has_a_scan() -> None:
    parse_document(encoded(loop()))
    for document in ({**loop(), "format": "gradgraph/1"}, {**linear(), "format": "gradgraph/2"}):
        with pytest.raises(DocumentRefused, match="documents with a scan, and no others, are gradgraph/2"):
            parse_document(encoded(document))


SHRUNK = node("slice.Tensor", [value(6), 1, 0, 2, 1], 7)
HALF = node("slice.Tensor", [value(2), 1, value(3), 9, 1], 5)
ILL_SHAPED: dict[str, tuple[list[Any], Any, str]] = {
    "a carry of changing shape": (["body", "nodes", 3], SHRUNK, "carry 0 changes its shape or type"),
    "a carry of changing type": (
        ["body", "nodes", 3],
        node("to.dtype", [value(6), "float64", False, False, None], 7),
        "carry 0 changes its shape or type",
    ),
    "a counter out of range in the last step": (["args", 4], [[1, 1]], "select"),
    "a slice that grows shorter": (["body", "nodes", 1], HALF, ""),
    "given values of several shapes": (
        ["args", 2],
        [[value(2)] * 63 + [value(1)]],
        "what is given is not of one shape and type",
    ),
}


@pytest.mark.parametrize("name", ILL_SHAPED)
def test_a_scan_whose_steps_are_not_alike_is_refused_on_shapes_alone(name: str) -> None:
    path, new, words = ILL_SHAPED[name]
    document = changed(path, new)
    if path == ["args", 2]:
        document = shifted(document)
    with pytest.raises(DocumentRefused) as caught:
        costs(document, 4)
    assert words in caught.value.detail, caught.value.detail
    with pytest.raises(DocumentRefused):
        answers(document, {"w": torch.ones(5).numpy()}, {"x": torch.randn(3, 64, 5)})


def shifted(document: Raw) -> Raw:
    """The scan's body with room for a given value after the carry."""
    body = document["nodes"][1]["body"]
    nodes = json.loads(json.dumps(body["nodes"]))
    for one in nodes:
        one["args"] = [value(each["v"] + (each["v"] > 0)) if isinstance(each, dict) else each for each in one["args"]]
        one["out"] = [number + 1 for number in one["out"]]
    document["nodes"][1]["body"] = {**body, "nodes": nodes, "carried": [8], "every": [8]}
    return document


def test_a_scan_of_a_hundred_thousand_calls_is_bounded_in_few_steps() -> None:
    document = parse_document(encoded(last_alone(25_000)))
    assert document.calls == 100_002
    one, other = (compute_bound(Program(parse_document(encoded(last_alone(length)))), 4) for length in (12_500, 25_000))
    assert other.operations > 1.9 * one.operations
    assert other.peak_bytes > 25_000 * 4 * 5 * 4


def last_alone(length: int) -> Raw:
    """Returns `loop` of `length` steps, whose loss is the mean of the last state."""
    document = loop(64)
    select, scan, _, _ = document["nodes"]
    scan = {**scan, "args": [length, *scan["args"][1:]], "out": [3]}
    scan["body"] = {**scan["body"], "last": [7], "every": []}
    document["inputs"][1]["shape"][1] = length
    return {**document, "nodes": [select, scan, node("mean.default", [value(3), None], 4)], "loss": 4}


def test_words_that_a_loop_looks_up_have_their_range() -> None:
    document = loop()
    document["inputs"] = [tensor("param", "w", [11, 5], grad=True), tensor("data", "x", ["rows", 64], "int64")]
    document["nodes"][0] = node("creation.full", [[4, 5], 0.0, "float32"], 2)
    body = document["nodes"][1]["body"]["nodes"]
    body[0] = node("select.int", [value(2), 1, value(3)], 4)
    body[1] = node("embedding.default", [value(1), value(4), -1, False, False], 5)
    body[2] = node("add.Tensor", [value(0), value(5), 1], 6)
    program = Program(parse_document(encoded(document)))
    assert find_input_ranges(program, 4) == {"x": (Range(0, 11, None),)}


UNARY = ("tanh.default", "sigmoid.default", "neg.default", "sin.default")
BINARY = ("add.Tensor", "mul.Tensor", "sub.Tensor")


@st.composite
def loops(draw: st.DrawFn) -> Raw:
    """A scan of up to three carries, with values given, fixed and counted, whose body is any few operators."""
    length, carries = draw(st.integers(LEAST, LEAST + 8)), draw(st.integers(0, 3))
    inputs = [
        *(tensor("param", f"p{one}", [3], grad=True) for one in range(2)),
        tensor("data", "x", ["rows", length, 3]),
    ]
    start = [node("select.int", [value(2), 1, draw(st.integers(0, 4))], 3 + one) for one in range(carries)]
    parts = node("unbind.int", [value(2), 1], *range(3 + carries, 3 + carries + length))
    first = carries + 5
    body = [
        node("select.int", [value(carries + 3), 1, value(carries + 4)], first),
        node("mul.Tensor", [value(first), value(carries + 1)], first + 1),
    ]
    usable = [*range(carries + 1), first, first + 1]
    for op in draw(st.lists(st.sampled_from(UNARY + BINARY), min_size=1, max_size=5)):
        read = [value(draw(st.sampled_from(usable)))]
        if op in BINARY:
            read.append(value(draw(st.sampled_from([*usable, carries + 1, carries + 2, carries + 4]))))
        body.append(node(op, [*read, 1] if op in ("add.Tensor", "sub.Tensor") else read, usable[-1] + 1))
        usable.append(usable[-1] + 1)
    body.append(node("add.Tensor", [value(usable[-1]), value(first + 1), 1], usable[-1] + 1))
    usable.append(usable[-1] + 1)
    own = st.sampled_from(usable[carries + 1 :])
    every = sorted({usable[-1], draw(own)})
    first = 3 + carries + length
    by = draw(st.sampled_from(((0, 1), (length - 1, -1))))
    args = [
        length,
        [value(3 + one) for one in range(carries)],
        [[value(one) for one in range(3 + carries, first)]],
        [value(0), value(1), value(2)],
        [list(by)],
    ]
    results = list(range(first, first + len(every) * length))
    carried = [draw(own) for _ in range(carries)]
    scan = {**node("scan", args, *results), "body": {"nodes": body, "carried": carried, "last": [], "every": every}}
    end = results[-1] + 1
    nodes = [*start, parts, scan, node("cat.default", [[value(one) for one in results], 1], end)]
    added = node("mul.Tensor", [value(end), value(end)], end + 1), node("mean.default", [value(end + 1), None], end + 2)
    return {**linear(), "format": "gradgraph/2", "inputs": inputs, "nodes": [*nodes, *added], "loss": end + 2}


@FULL
@given(loops())
def test_any_loop_has_the_bits_of_its_steps_and_is_found_in_them(document: Raw) -> None:
    plain = unrolled(document)
    found = roll_loops(plain, lambda _: "a form")
    assert found["format"] == "gradgraph/2"
    assert unrolled(found) == plain
    state = {name: torch.linspace(-1, 1, 3).numpy() for name in ("p0", "p1")}
    data = {"x": torch.linspace(-1, 1, 2 * 3 * document["inputs"][2]["shape"][1]).view(2, -1, 3)}
    bits = [answers(one, state, data) for one in (document, plain, found)]
    assert all(one == other for one, other in pairwise(bits))
    told, others = costs(document, 8), costs(plain, 8)
    assert told.operations == others.operations
    assert told.peak_bytes >= others.peak_bytes


def test_a_scan_is_one_node_of_a_parsed_document() -> None:
    document = parse_document(encoded(loop()))
    assert [entry.op for entry in document.nodes] == ["select.int", "scan", "stack.default", "mean.default"]
    (scan,) = (entry for entry in document.nodes if isinstance(entry, Scan))
    assert (scan.length, scan.inputs, len(scan.body)) == (64, 4, 4)
    assert document.precision == "fp32"
    assert document.calls == 3 + 64 * 4
