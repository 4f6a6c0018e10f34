"""A traced pass has the bits of the ordinary one, and every node done again from bytes has those of the trace."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from graphdoc.document.interpret import Program, Results, compute_gradients
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.errors import Refused
from graphdoc.tracing.nodes import Ran, run_backward, run_forward
from graphdoc.tracing.packed import digest_packed
from graphdoc.tracing.passes import DATA, CallStep, CounterValue, Made, PassOrder, Read, Root, Stated
from graphdoc.tracing.values import Traced, Value, compute_digest, locate_value, pack_value, unpack_value
from tests.graphdoc.test_document_models import LATER, made
from tests.graphdoc.test_document_scan import PLACES, Selective
from tests.kit.torch_tests import TRACING
from tests.lanes import FULL
from tests.models.zoo import ZOO

pytestmark = TRACING
SEED = bytes(31) + b"\1"
SLOW = {*LATER, "gpt", "unet"}
"""Each takes seconds, and its operators are in those that stay."""


@dataclass
class TracedPass:
    program: Program
    state: dict[str, Tensor]
    data: dict[str, Tensor]

    def __post_init__(self) -> None:
        self.order, self.ran = PassOrder(self.program), dict[int, Ran]()
        self.results: list[list[Value]] = [[Traced(self.data[entry.name]) for entry in self.order.data]]
        for step in self.order.steps:
            near = [self.resolve(read) for read in step.reads]
            self.results.append([locate_value(result, near) for result in self._run(step)])

    def _run(self, step: CallStep) -> list[Value]:
        values = [self.resolve(read) for read in step.reads]
        if step.way == "forward":
            self.ran[id(step.call)], results = run_forward(step.call, taken(values), SEED, "cpu")
            return results
        return backward(step, self.ran.pop(id(step.call)), values)

    def resolve(self, read: Read) -> Value:
        match read:
            case Made(step, place):
                return self.results[step][place]
            case Stated(name, grad):
                return Traced(self.state[name], grad)
            case CounterValue(value):
                return Traced(value)
            case Root():
                return Traced(torch.ones(()))
        return None

    def redo(self, step: CallStep) -> list[Value]:
        """Computes one step from the bytes of its inputs."""
        values = [unpack_value(pack_value(self.resolve(read))) for read in step.reads]
        ran, results = run_forward(step.call, taken(values[: len(step.call.reads)]), SEED, "cpu")
        given = results if step.way == "forward" else backward(step, ran, values)
        return [locate_value(result, values) for result in given]


def taken(values: list[Value]) -> list[Traced]:
    return [value for value in values if value is not None]


def backward(step: CallStep, ran: Ran, values: list[Value]) -> list[Value]:
    arguments, made_ = len(step.call.reads), len(step.call.makes)
    return run_backward(ran, values[arguments : arguments + made_], values[arguments + made_ :])


def ordinary(program: Program, state: dict[str, Tensor], data: Any) -> tuple[Results, list[Tensor]]:
    leaves = {entry.name: state[entry.name].clone().requires_grad_() for entry in program.document.trainable}
    results = program.run(state | leaves, data, SEED)
    return results, compute_gradients(results.loss, list(leaves.values()))


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def hold_to_ordinary(program: Program, state: dict[str, Tensor], data: dict[str, Tensor]) -> None:
    results, gradients = ordinary(program, state, data)
    here = TracedPass(program, state, data)
    assert here.order.count == len(here.results)
    loss = here.resolve(here.order.loss)
    assert loss is not None
    assert bits(loss.data) == bits(results.loss)
    for entry, gradient in zip(program.document.trainable, gradients, strict=True):
        traced = here.resolve(here.order.gradients[entry.name])
        assert bits(torch.zeros_like(gradient) if traced is None else traced.data) == bits(gradient), entry.name
    for name, update in results.updates.items():
        traced = here.resolve(here.order.updates[name])
        assert traced is not None
        assert bits(traced.data) == bits(update)
    for number, step in enumerate(here.order.steps, DATA + 1):
        alone = [compute_digest(value) for value in here.redo(step)]
        assert alone == [digest_packed(pack_value(value)) for value in here.results[number]], step.name


@pytest.mark.parametrize("name", [pytest.param(name, marks=[FULL] if name in SLOW else []) for name in ZOO])
def test_every_model_is_traced_with_its_own_bits(name: str) -> None:
    data, state = made(name)
    own = {key: torch.tensor(tensor.numpy()) for key, tensor in state.items()}
    hold_to_ordinary(Program(parse_document(data)), own, dict(ZOO[name].data))


@FULL
def test_each_step_of_a_scan_is_traced() -> None:
    torch.manual_seed(0)
    example = torch.randn(2, PLACES), torch.arange(2)
    published = publish_module(Selective(0.2), compute_classification_loss, example)
    document = parse_document(published.document)
    assert any(node.op == "scan" for node in document.nodes)
    state = {name: torch.tensor(array) for name, array in published.parameters.items()}
    hold_to_ordinary(Program(document), state, dict(zip(("x", "y"), example, strict=True)))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4),
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2),
        torch.arange(24.0).reshape(4, 6)[:, 1:4],
        torch.ones(1, 5).expand(3, 5),
        torch.arange(10.0).unfold(0, 4, 2),
        torch.tensor(3.5),
        torch.empty(0, 3),
        torch.arange(9, dtype=torch.int64)[2:],
        torch.arange(8).to(torch.bfloat16)[1::2],
        torch.tensor([True, False]),
    ],
)
def test_a_tensor_comes_back_with_its_strides_and_its_place_in_memory(tensor: Tensor) -> None:
    value = Traced(tensor, tensor.is_floating_point())
    back = unpack_value(pack_value(value))
    assert back is not None
    assert back.grad == value.grad
    assert torch.equal(back.data, tensor)
    assert back.data.stride() == tensor.stride()
    assert compute_digest(back) == compute_digest(value) == digest_packed(pack_value(value))


def test_a_view_that_is_spread_over_a_block_is_known_by_the_block() -> None:
    whole = Traced(torch.arange(24.0).reshape(4, 6))
    view = locate_value(Traced(whole.data[1:3, ::2], True), [whole])
    back = unpack_value(pack_value(view))
    assert view is not None
    assert back is not None
    assert view.base is not None
    assert torch.equal(back.data, view.data)
    assert back.data.stride() == view.data.stride()
    assert compute_digest(back) == compute_digest(view) == digest_packed(pack_value(view))
    further = Traced(back.data[:, 1:], True)
    assert compute_digest(locate_value(further, [back])) == compute_digest(
        locate_value(Traced(view.data[:, 1:], True), [view])
    )
    assert locate_value(Traced(torch.ones(3, 4)[:, ::2]), [whole]).base is None  # type: ignore[union-attr]
    with pytest.raises(Refused):
        unpack_value(pack_value(view).replace(b'"within":[24,6]', b'"within":[24,20]'))


def test_the_digest_covers_layout_offset_and_grad() -> None:
    whole = torch.arange(32.0).reshape(4, 8)
    same = [whole, whole.t().contiguous().t(), torch.arange(-4.0, 32.0)[4:].reshape(4, 8)]
    digests = {compute_digest(Traced(tensor, grad)) for tensor in same for grad in (False, True)}
    assert all(torch.equal(tensor, whole) for tensor in same)
    assert len(digests) == 6


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\0\0\0\5abc",
        b"\0\0\0\2{}",
        pack_value(Traced(torch.ones(3)))[:-1],
        pack_value(Traced(torch.ones(3))) + b"x",
        pack_value(Traced(torch.ones(3))).replace(b'"shape":[3]', b'"shape":[8]'),
        pack_value(Traced(torch.ones(3))).replace(b'"kind":"tensor"', b'"kind":"pickle"'),
        pack_value(Traced(torch.ones(2, 2)[:, :1])).replace(b"[2,1]", b"[2147483647,1]"),
    ],
)
def test_other_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(Refused):
        unpack_value(packed)
