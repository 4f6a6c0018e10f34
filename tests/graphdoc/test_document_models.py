"""Models as people write them become documents with the same bits; a document's cost is never understated."""

from functools import cache

import pytest
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from graphdoc.document.bound import compute_bound
from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.schema import parse_document
from tests.kit.torch_tests import TRACING
from tests.lanes import FULL
from tests.models.zoo import ZOO

LATER = {
    "gpt in bfloat16",
    "unet",
    "resnet-18",
    "resnet-50",
    "convnet",
    "transformer",
    "masked encoder",
    "vit",
    "hub's vit",
    "hub's bert",
    "hub's gpt-2",
    "hub's llama",
}
"""Each is like one that stays in `make test`."""

pytestmark = TRACING


@cache
def made(name: str) -> tuple[bytes, dict[str, Tensor]]:
    """Document and state; none is made twice."""
    return ZOO[name].document()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[FULL] if name in LATER else []) for name in ZOO])
def test_a_model_is_published_with_its_own_bits(name: str) -> None:
    """Publishing compares loss and gradients with the module's, at two seeds and two shapes."""
    case = ZOO[name]
    data, state = made(name)
    document = parse_document(data)
    assert {entry.name for entry in document.of("data")} == set(case.data)
    assert document.trainable
    assert b"_.default" not in data
    cost = compute_bound(Program(document), 4)
    leaves = {entry.name: state[entry.name].clone().requires_grad_() for entry in document.trainable}
    with FlopCounterMode(display=False) as counter:
        results = Program(document).run(state | leaves, dict(case.data), bytes(32))
        answers = compute_gradients(results.loss, list(leaves.values()))
    assert cost.operations >= counter.get_total_flops() > 0
    assert results.loss.isfinite()
    assert any(answer.abs().sum() > 0 for answer in answers)
    assert cost.peak_bytes >= sum(leaf.nbytes for leaf in leaves.values())


def test_evaluation_draws_nothing() -> None:
    data, _ = ZOO["gpt"].document(training=False)
    document = parse_document(data)
    assert document.updates == {}
    assert not any("dropout" in node.op for node in document.nodes)


def test_tied_weights_travel_once_and_long_sequences_have_a_name() -> None:
    data, _ = made("gpt")
    document = parse_document(data)
    assert [entry.name for entry in document.inputs if "head" in entry.name] == []
    assert document.sizes == {"length": 8}
    assert document.batch(2, {"length": 5}) == {"x": ((2, 5), "int64"), "y": ((2, 5), "int64")}


def test_a_recurrent_model_takes_sequences_of_any_length() -> None:
    """Each layer is one node: nothing of it depends on how many places there are."""
    data, _ = made("lstm")
    document = parse_document(data)
    assert document.sizes == {"length": 8}
    assert [node.op for node in document.nodes].count("lstm.input") == 1
