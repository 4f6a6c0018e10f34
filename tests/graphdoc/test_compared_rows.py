"""Document and module are compared on rows that can be trained on: nothing equals it because both are NaN."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.errors import DocumentRefused, Refused
from graphdoc.export import check_taken, export_module
from tests.graphdoc.own_bits import by_document, by_module, differences
from tests.kit.torch_tests import TRACING
from tests.lanes import leave_to_full

pytestmark = TRACING
ROWS = 8
Y = np.arange(ROWS) % 4
UNIT = np.random.default_rng(0).uniform(0.05, 0.95, (ROWS, 16)).astype(np.float32)
COUNTS = np.random.default_rng(0).poisson(3.0, (ROWS, 16)).astype(np.float32)


class Behind(nn.Module):
    """Layers behind an operator that takes no normal noise."""

    def __init__(self, first: Callable[[Tensor], Tensor], inner: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.a, self.b = first, inner, nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.inner(self.a(self.first(x))))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


def hooked(h: Tensor) -> Tensor:
    if h.requires_grad:
        h.register_hook(lambda gradient: gradient * 0.5)
    return h * 1


FIRST: dict[str, Callable[[Tensor], Tensor]] = {
    "log": torch.log,
    "log1p": lambda x: torch.log1p(x - 1),
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "logit": lambda x: torch.log(x / (1 - x)),
    "pow": lambda x: x**0.4,
    "acos": torch.acos,
    "atanh": torch.atanh,
    "log of a softmax's sum": lambda x: torch.log(x.clamp(max=1.0).cumprod(1)),
}


@pytest.mark.parametrize("inner", [Reversed.apply, hooked], ids=["its own backward", "a hook"])
@pytest.mark.parametrize("first", leave_to_full(FIRST.values()), ids=FIRST.keys())
def test_a_backward_of_its_own_is_found_behind_any_domain(
    first: Callable[[Tensor], Tensor], inner: Callable[[Tensor], Tensor]
) -> None:
    with pytest.raises(DocumentRefused, match="not what the module computes"):
        export_module(Behind(first, inner), functional.cross_entropy, {"x": UNIT, "y": Y})
    made = export_module(Behind(first, torch.relu), functional.cross_entropy, {"x": UNIT, "y": Y})
    data = {"x": torch.from_numpy(UNIT), "y": torch.from_numpy(Y)}
    assert not differences(
        by_document(made, data), by_module(Behind(first, torch.relu), functional.cross_entropy, data)
    )


def test_a_reversal_behind_counts_is_found() -> None:
    with pytest.raises(DocumentRefused, match="not what the module computes"):
        export_module(Behind(torch.log1p, Reversed.apply), functional.cross_entropy, {"x": COUNTS, "y": Y})


def test_a_loss_that_is_not_finite_is_refused_in_words() -> None:
    with pytest.raises(DocumentRefused, match="the loss of the data's own rows is nan"):
        export_module(Behind(torch.log, torch.relu), functional.cross_entropy, {"x": UNIT - 2, "y": Y})


def test_a_gradient_that_is_not_finite_is_refused_by_its_parameter() -> None:
    with pytest.raises(DocumentRefused, match=r"the gradient of a\.weight is not finite"):
        export_module(Behind(torch.relu, lambda h: (h * 0).sqrt()), functional.cross_entropy, {"x": UNIT, "y": Y})


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 4), nn.Linear(4, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(self.outer(self.inner(x).relu())), x


class Categories(nn.Module):
    """A whole number in a column of floats, as a table has it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.outer = nn.Embedding(11, 4), nn.Linear(19, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.cat([self.table(x[:, 0].long()), x[:, 1:]], 1))


class Shares(nn.Module):
    """Rows whose last place is the rest to 1: no mixture of columns keeps that."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.sqrt(1 - x.square().sum(1, keepdim=True) + 1e-6) * x)


UNIT_ROWS = UNIT / np.linalg.norm(UNIT, axis=1, keepdims=True) * np.float32(0.9999)
CASES: dict[str, tuple[Callable[[], nn.Module], Any, np.ndarray]] = {
    "pixels": (Autoencoder, lambda o, _: functional.binary_cross_entropy(o[0], o[1]), UNIT),
    "a category among floats": (Categories, functional.cross_entropy, np.concatenate([COUNTS[:, :1], UNIT[:, 1:]], 1)),
    "rows of length one": (Shares, functional.cross_entropy, UNIT_ROWS),
}


@pytest.mark.parametrize(("build", "loss", "x"), CASES.values(), ids=CASES.keys())
def test_inputs_of_a_range_are_compared_within_it(build: Callable[[], nn.Module], loss: Any, x: np.ndarray) -> None:
    module = build()
    made = export_module(module, loss, {"x": x, "y": Y})
    data = {"x": torch.from_numpy(x), "y": torch.from_numpy(Y)}
    assert not differences(by_document(made, data), by_module(module, loss, data))


class Columns(nn.Module):
    """Tables of different size for columns of one input, taken one, or several, at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.big, self.small, self.out = nn.Embedding(20, 4), nn.Embedding(3, 4), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.big(x[:, 0]), self.big(x[:, 3]), self.small(x[:, 1:3]).flatten(1)], 1))


def columns() -> np.ndarray:
    drawn = np.random.default_rng(0)
    return np.stack([drawn.integers(0, high, 64) for high in (20, 3, 3, 20)], 1)


def test_each_column_of_one_input_has_its_own_range() -> None:
    arrays = {"x": columns(), "y": np.arange(64) % 4}
    made = export_module(Columns(), functional.cross_entropy, arrays)
    check_taken(made, arrays, ROWS)
    arrays["x"][40, 2] = 3
    with pytest.raises(Refused, match="row 40 of x has 3; the model takes 0 to 2"):
        check_taken(made, arrays, ROWS)
    arrays["x"][30, 3] = 20
    with pytest.raises(Refused, match="row 30 of x has 20; the model takes 0 to 19"):
        check_taken(made, arrays, ROWS)


def test_the_rows_compared_are_from_all_over_the_data() -> None:
    """The first rows of a sorted table are all alike: a branch of torch.where is not seen on them."""
    x = np.concatenate([np.zeros((100, 16), np.float32), UNIT])
    module = Behind(torch.sqrt, lambda h: torch.where(h.sum() < 1e9, Reversed.apply(h), h))
    with pytest.raises(DocumentRefused):
        export_module(module, functional.cross_entropy, {"x": x, "y": np.arange(108) % 4})
