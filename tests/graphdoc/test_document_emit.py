"""An export of torch becomes a document that computes the same bits, or it is refused by name: never wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.publish import (
    Objective,
    compute_classification_loss,
    export_objective,
    publish_module,
)
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused
from graphdoc.figures import Published
from tests.kit.torch_tests import TRACING
from tests.lanes import leave_to_full

pytestmark = TRACING
SEED = bytes(32)


class Function(nn.Module):
    """A module of one linear layer (8 to 8) whose answer goes through this function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


def published(module: nn.Module, *shape: int) -> Published:
    return publish_module(module, compute_classification_loss, (torch.randn(4, *shape), torch.arange(4)))


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.view(torch.int32), other.view(torch.int32))


def answers(data: bytes, state: dict[str, Any], x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Loss, gradients and updates of a document."""
    program = Program(parse_document(data))
    tensors = {name: torch.tensor(array) for name, array in state.items()}
    leaves = {entry.name: tensors[entry.name].requires_grad_() for entry in program.document.trainable}
    results = program.run(tensors | leaves, {"x": x, "y": y}, SEED)
    found = compute_gradients(results.loss, list(leaves.values()))
    return {"loss": results.loss.detach(), **dict(zip(leaves, found, strict=True)), **results.updates}


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10)), (8,)),
    "cnn with batch norm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding="same"),
            nn.GroupNorm(2, 4),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 10),
        ),
        (1, 8, 8),
    ),
    "activations": (
        lambda: nn.Sequential(
            *(nn.Linear(8, 8), nn.GELU(), nn.SiLU(inplace=True), nn.ELU(), nn.LeakyReLU(0.1, inplace=True)),
            *(nn.Hardtanh(), nn.Softplus(), nn.Tanh(), nn.Sigmoid(), nn.LayerNorm(8), nn.PReLU(), nn.Softmax(-1)),
        ),
        (8,),
    ),
}


@pytest.mark.parametrize(("build", "shape"), leave_to_full(MODULES.values()), ids=MODULES.keys())
def test_the_bits_are_those_of_the_exported_module(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    module = build()
    answer = published(module, *shape)
    example = {"x": torch.randn(4, *shape), "y": torch.arange(4)}
    traced: Any = export_objective(Objective(module, compute_classification_loss), example, {}).module()
    for rows in (2, 33):
        x, y = torch.randn(rows, *shape), torch.randint(0, 8, (rows,))
        before = {name: torch.tensor(array) for name, array in answer.parameters.items()}
        traced.load_state_dict({f"model.{name}": tensor for name, tensor in before.items()})
        ours, theirs = answers(answer.document, answer.parameters, x, y), traced_answers(traced, x, y)
        assert set(ours) <= set(theirs)
        for name, tensor in ours.items():
            assert same_bits(tensor, theirs[name]), name


def traced_answers(traced: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Loss, gradients and buffers of an exported module, by their plain names."""
    loss = traced({"x": x, "y": y})[0]
    parameters = {name.removeprefix("model."): entry for name, entry in traced.named_parameters()}
    found = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    buffers = {name.removeprefix("model."): entry.clone() for name, entry in traced.named_buffers()}
    return {"loss": loss.detach(), **found, **buffers}


def test_names_kinds_and_state_are_those_of_the_module() -> None:
    module = MODULES["cnn with batch norm"][0]()
    answer = published(module, 1, 8, 8)
    training, evaluation = parse_document(answer.document), parse_document(answer.evaluation)
    assert {name: tuple(entry.shape) for name, entry in module.state_dict().items()} == {
        name: array.shape for name, array in answer.parameters.items()
    }
    assert training.counters == ("1.num_batches_tracked",)
    assert set(training.updates) == {"1.running_mean", "1.running_var"}
    assert training.state == evaluation.state
    assert evaluation.updates == {}
    assert set(training.metrics) == set(evaluation.metrics) == {"accuracy"}
    assert module.training
    assert module[1].num_batches_tracked.item() == 0


def write_to_a_view(h: Tensor) -> Tensor:
    view = h[:, :2]
    view.add_(1.0)
    return h


def write_to_the_base_of_a_view(h: Tensor) -> Tensor:
    view = h.view(-1, 2, 4)
    h.mul_(2.0)
    return view.reshape(-1, 8) + h


def write_to_a_transposed_view(h: Tensor) -> Tensor:
    h = h * 1
    h.view(-1, 2, 4).transpose(1, 2)[:, 0].fill_(0.5)
    return h


def write_by_index(h: Tensor) -> Tensor:
    h[:, 0] = 3.0
    h[:, 1:3] = h[:, 4:6]
    return h


def write_after_a_reader(h: Tensor) -> Tensor:
    doubled = h * 2
    h.add_(doubled)
    return h + doubled


def relu_in_place_on_a_view(h: Tensor) -> Tensor:
    functional.relu(h[:, :4], inplace=True)
    return h


WRITES = [
    write_to_a_view,
    write_to_the_base_of_a_view,
    write_to_a_transposed_view,
    write_by_index,
    write_after_a_reader,
    relu_in_place_on_a_view,
]


@pytest.mark.parametrize("function", leave_to_full(WRITES), ids=lambda function: function.__name__)
def test_a_write_in_place_is_right(function: Callable[[Tensor], Tensor]) -> None:
    module = Function(function)
    answer = published(module, 8)
    assert b"_.default" not in answer.document
    x, y = torch.randn(5, 8), torch.arange(5)
    loss = functional.cross_entropy(module(x), y)
    expected = torch.autograd.grad(loss, list(module.parameters()))
    ours = answers(answer.document, answer.parameters, x, y)
    assert same_bits(ours["loss"], loss.detach())
    assert same_bits(ours["linear.weight"], expected[0])


@pytest.mark.parametrize("function", WRITES[1:2] + WRITES[4:5], ids=lambda function: function.__name__)
def test_a_write_that_nobody_else_sees_needs_no_view(function: Callable[[Tensor], Tensor]) -> None:
    assert b"slice_scatter" not in published(Function(function), 8).document


def without_gradient(h: Tensor) -> Tensor:
    with torch.no_grad():
        mean = h.mean(0)
    return h - mean


def gradient_inside(h: Tensor) -> Tensor:
    with torch.no_grad():
        still = h * 2
        with torch.enable_grad():
            return still * h


def in_autocast(h: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = torch.einsum("rw,sw->rs", h, h @ h.t() @ h)
        return functional.softmax(mixed, -1).float()[:, :1] * torch.cat([h, h.bfloat16()])[: h.shape[0]]


def in_no_autocast(h: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inner = h @ h.t()
        with torch.autocast("cpu", enabled=False):
            return h @ (inner.float()[:, :1] * torch.ones(1, 8)).t() @ torch.ones(1, 8).expand(h.shape[0], 8)


def drawing(h: Tensor) -> Tensor:
    noisy = h + torch.randn_like(h) * torch.rand_like(h) + torch.bernoulli(torch.sigmoid(h))
    dropped = functional.alpha_dropout(noisy, 0.3, training=True)
    functional.dropout(dropped, 0.5, training=True)  # nobody reads it, and it draws all the same
    return functional.dropout1d(dropped.unsqueeze(-1), 0.4, training=True).squeeze(-1)


def in_float64(h: Tensor) -> Tensor:
    return (h.double() * 2).float()


def made_of_numbers(h: Tensor) -> Tensor:
    rows = h.shape[0]
    grid = torch.linspace(0, 1, 8) + torch.arange(0, rows, dtype=torch.float32).unsqueeze(1) / (rows % 3 + 1)
    made = torch.zeros(rows, 8) + torch.full((8,), 0.5) + torch.eye(8)[0] + torch.ones_like(h) + grid
    return h * made + h.new_zeros(max(rows, 4), 8).sum() - (-rows)


def joined_with_nothing(h: Tensor) -> Tensor:
    return torch.cat([torch.tensor([]), h])


EXPRESSED = [
    joined_with_nothing,
    without_gradient,
    in_autocast,
    in_no_autocast,
    gradient_inside,
    drawing,
    in_float64,
    made_of_numbers,
]


@pytest.mark.parametrize("function", EXPRESSED, ids=lambda function: function.__name__)
def test_functions_without_an_operator_are_decomposed(function: Callable[[Tensor], Tensor]) -> None:
    """Publishing compares every bit with the module's own."""
    assert parse_document(published(Function(function), 8).document).nodes


class Doubled(torch.autograd.Function):
    """Its backward is not that of its forward."""

    @staticmethod
    def forward(_ctx: Any, h: Tensor) -> Tensor:
        return h * 2

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 100


def hooked(h: Tensor) -> Tensor:
    if h.requires_grad:
        h.register_hook(lambda gradient: gradient * 3)
    return h * 1


REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "its own backward": (lambda h: Doubled.apply(h), "not what the module computes|cannot be traced"),
    "a hook": (hooked, "not what the module computes|cannot be traced"),
    "an order at random": (
        lambda h: h + torch.randperm(8),
        "randperm.default is not in the language; use torch.rand_like",
    ),
    "complex numbers": (lambda h: torch.view_as_complex(h.view(-1, 4, 2)).abs().repeat(1, 2), "real and imaginary"),
    "memory as it was": (lambda h: h + torch.empty_like(h) * 0, "use torch.zeros_like"),
    "an uncertain shape": (lambda h: h * torch.unique(h).shape[0], "unique|traced"),
    "a shape from data": (lambda h: h[h.sum(1).nonzero().flatten()], "cannot be traced|nonzero"),
    "a branch on data": (lambda h: h if h.sum() > 0 else -h, "cannot be traced"),
    "a number from data": (lambda h: h * h.sum().item(), "cannot be traced|a number from data cannot decide"),
    "nothing": (lambda h: h + torch.tensor([]).sum(), "reads a tensor without elements; leave it out"),
    "feature dropout": (lambda h: functional.feature_alpha_dropout(h, 0.5, training=True), "language|traced"),
}


@pytest.mark.parametrize(("function", "reason"), leave_to_full(REFUSED.values()), ids=REFUSED.keys())
def test_functions_outside_the_language_are_refused(function: Callable[[Tensor], Tensor], reason: str) -> None:
    with pytest.raises(DocumentRefused, match=reason):
        published(Function(function), 8)


def test_a_refusal_names_operator_place_and_what_to_write_instead() -> None:
    inner = nn.Sequential(nn.Linear(8, 8), Function(lambda h: h + torch.randperm(8)))
    with pytest.raises(DocumentRefused, match=r"1: randperm\.default is not in the language; use torch\.rand_like"):
        published(nn.Sequential(inner, nn.Linear(8, 8)), 8)


def test_a_hook_on_a_parameter_is_found() -> None:
    module = nn.Linear(8, 8)
    module.weight.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(DocumentRefused, match=r"weight has a hook on its gradient.*remove it"):
        published(module, 8)


class Writing(nn.Module):
    """Keeps the mean of its inputs in a given buffer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.kind = kind
        self.register_buffer("seen", torch.zeros(8))
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "parameter":
            self.linear.bias.data.add_(1.0)
        if self.kind == "input":
            x.add_(1.0)
        if self.kind == "buffer":
            self.get_buffer("seen").mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        if self.kind == "integers":
            self.get_buffer("rows").add_(2)
        return self.linear(x)


@pytest.mark.parametrize("kind", ["parameter", "input", "integers"])
def test_a_write_to_what_is_not_its_own_is_refused(kind: str) -> None:
    with pytest.raises(DocumentRefused):
        published(Writing(kind), 8)


def test_a_float_buffer_may_change_any_way_it_likes() -> None:
    answer = published(Writing("buffer"), 8)
    assert set(parse_document(answer.document).updates) == {"seen"}
    x = torch.randn(6, 8)
    ours = answers(answer.document, answer.parameters, x, torch.arange(6))
    assert torch.allclose(ours["seen"], 0.1 * x.mean(0))


def test_instance_norm_with_statistics_hides_a_write_and_is_refused() -> None:
    module = nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(DocumentRefused, match="instance_norm"):
        published(module, 1, 8, 8)


class Tied(nn.Module):
    """Two layers with one weight, a frozen parameter, an unused one, a constant and a fixed buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8, bias=False)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("mask", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x) * self.frozen)) * self.mask + torch.tensor([1.0] * 4 + [2.0] * 4)


def test_a_parameter_that_autocast_meets_twice_is_converted_once() -> None:
    class Twice(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(torch.tanh(super().forward(x))).float()

    answer = published(Twice(8, 8), 8)
    conversions = [node for node in parse_document(answer.document).nodes if node.op == "to.dtype"]
    assert len(conversions) == 4  # weight, bias, data, and the answer back


def test_tied_frozen_unused_and_constant_tensors() -> None:
    module = Tied()
    answer = published(module, 8)
    document = parse_document(answer.document)
    assert [entry.name for entry in document.trainable] == ["unused", "first.weight"]
    assert {entry.name for entry in document.of("const") if not entry.name.startswith("const.")} == {"mask"}
    constants = [name for name in answer.parameters if name.startswith("const.")]
    assert [answer.parameters[name].tolist() for name in constants] == [[1.0] * 4 + [2.0] * 4]
    x, y = torch.randn(5, 8), torch.arange(5)
    ours = answers(answer.document, answer.parameters, x, y)
    loss = functional.cross_entropy(module(x), y)
    assert same_bits(ours["first.weight"], torch.autograd.grad(loss, module.first.weight)[0])
    assert ours["unused"].tolist() == [0.0, 0.0, 0.0]


def test_regression_has_no_metrics() -> None:
    batch = torch.randn(4, 3), torch.randn(4, 1)
    answer = publish_module(nn.Linear(3, 1), lambda found, target: (functional.mse_loss(found, target), {}), batch)
    assert parse_document(answer.document).metrics == {}


def test_a_parameter_that_takes_a_reserved_name_is_refused() -> None:
    module = nn.Module()
    module.register_parameter("loss", nn.Parameter(torch.ones(8)))
    module.forward = lambda x: x * module.get_parameter("loss")  # type: ignore[method-assign, assignment]
    with pytest.raises(DocumentRefused, match="rename"):
        published(module, 8)


def test_dropout_is_right_by_its_own_rule_and_absent_from_evaluation() -> None:
    answer = published(nn.Sequential(nn.Dropout(0.25), nn.Linear(8, 8), nn.Dropout(0.5)), 8)
    sites = [node.arguments[2] for node in parse_document(answer.document).nodes if node.op == "dropout.hash"]
    assert sites == [0, 1]
    assert b"dropout" not in answer.evaluation
