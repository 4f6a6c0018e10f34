"""Functions without an operator of their name in the language: they are decomposed, with the same bits."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.document.foreign import written_out
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused
from graphdoc.export import export_module
from tests.kit.torch_tests import TRACING
from tests.lanes import FULL, leave_to_full

pytestmark = TRACING
X = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
Y = np.arange(8) % 4


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(8, 8), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


def depth(h: Tensor) -> Tensor:
    """As torchvision writes it."""
    return h * torch.empty([h.shape[0], 1], dtype=h.dtype).bernoulli_(0.8).div_(0.8)


def many(h: Tensor) -> Tensor:
    """Other names, all at once: each is one of the operators that the language has."""
    h = torch.multiply(h, torch.subtract(h, 1)) + torch.divide(h, 2) + torch.true_divide(h, 3) + torch.negative(h)
    h = torch.clip(h, -2, 2) + torch.absolute(h) + torch.arctan(h) + torch.arcsinh(h) + torch.special.expit(h)
    h = torch.concatenate([h, torch.fliplr(h)], 1) * torch.greater(h.mean(), -9)
    h = torch.moveaxis(h, 0, 1).swapdims(0, 1) / torch.linalg.norm(h, dim=1, keepdim=True)
    return torch.tensordot(h, torch.ones(16, 8), 1) + torch.inner(h, h[:2]).sum(1, keepdim=True)


WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "stochastic depth": depth,
    "stochastic depth as timm has it": lambda h: h * h.new_empty((h.shape[0], 1)).bernoulli_(0.7) / 0.7,
    "a mask that keeps all": lambda h: h * torch.empty(8).bernoulli_(1.0) + torch.rand(8),
    "uniform in place": lambda h: h + torch.empty_like(h).uniform_(-1, 2),
    "normal in place": lambda h: h + torch.empty(h.shape).normal_(0.5, 2.0),
    "gumbel": functional.gumbel_softmax,
    "gumbel, hard": lambda h: functional.gumbel_softmax(h, hard=True),
    "other names": many,
    "a product": lambda h: h * h.prod(1, keepdim=True) + h.prod(),
    "a fill by a tensor": lambda h: h.masked_fill(h > 0, h.mean()),
    "how many rows": lambda h: h / len(h) + h.sum() / len(h),
    "distances of rows": lambda h: h * torch.cdist(h, h.detach() + 1).mean(1, keepdim=True),
    "distances to centres": lambda h: h * torch.cdist(h, torch.eye(8), p=1.0),
    "a diagonal": lambda h: h * torch.diag(h.t() @ h),
    "a difference beside a draw": lambda h: functional.dropout(h * h.prod(1, keepdim=True), 0.3),
}


@pytest.mark.parametrize("function", leave_to_full(WRITTEN.values()), ids=WRITTEN.keys())
def test_a_decomposed_function_has_the_module_s_own_bits(function: Callable[[Tensor], Tensor]) -> None:
    """Publishing compares loss, gradients and buffers with the module's, bit by bit."""
    assert parse_document(
        export_module(Function(function), functional.cross_entropy, {"x": X, "y": Y}).document
    ).trainable


class Twice(nn.Module):
    """A norm that sees two views, as contrastive learning has it."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.inner(x.roll(by, 1)) for by in range(self.times)]).mean(0)


@FULL
@pytest.mark.parametrize("times", [2, 3])
def test_a_norm_may_be_called_more_than_once(times: int) -> None:
    document = parse_document(export_module(Twice(times), functional.cross_entropy, {"x": X, "y": Y}).document)
    assert set(document.updates) == {"inner.1.running_mean", "inner.1.running_var"}
    assert document.counters == ("inner.1.num_batches_tracked",)


class Masked(nn.Module):
    """torch's own encoder and decoder under a mask, causal or another."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.transformer = nn.Transformer(8, 2, 1, 1, 16, 0.1, batch_first=True)
        self.register_buffer("window", torch.ones(4, 4, dtype=torch.bool).tril().triu(-1).logical_not())

    def forward(self, x: Tensor) -> Tensor:
        places = x.unsqueeze(1) * torch.arange(1.0, 5.0).view(1, 4, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(4) if self.causal else self.get_buffer("window")
        return self.transformer(places, places, src_mask=mask, tgt_mask=mask).mean(1)


@FULL
@pytest.mark.parametrize("causal", [True, False])
def test_torchs_transformer_takes_a_mask(causal: bool) -> None:
    assert parse_document(export_module(Masked(causal), functional.cross_entropy, {"x": X, "y": Y}).document).trainable


class Physics(nn.Module):
    """Takes the derivative of its own answer by its input, as a PINN does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        answer = self.linear(x).tanh()
        return answer + torch.autograd.grad(answer.sum(), x, create_graph=True)[0].square().sum(1, keepdim=True)


def test_a_gradient_in_forward_is_refused_in_words() -> None:
    with pytest.raises(DocumentRefused, match=r"takes a gradient itself.*write that derivative out"):
        export_module(Physics(), functional.cross_entropy, {"x": X, "y": Y})


def test_a_name_may_have_a_dash() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({"by-class": nn.Linear(8, 4)})

        def forward(self, x: Tensor) -> Tensor:
            return self.heads["by-class"](x)

    document = parse_document(export_module(Heads(), functional.cross_entropy, {"x": X, "y": Y}).document)
    assert {entry.name for entry in document.trainable} == {"heads.by-class.weight", "heads.by-class.bias"}


def test_an_operator_that_torch_cannot_decompose_is_refused_by_its_name() -> None:
    def fail(*_: object) -> Tensor:
        raise RuntimeError("no decomposition")

    program = torch.export.export(Function(torch.tanh), (torch.from_numpy(X),))
    with pytest.raises(DocumentRefused, match=r"tanh\.default is not in the language"):
        written_out(program, {torch.ops.aten.tanh.default: fail})
