"""Publishing exchanges functions of the whole process: threads wait for each other, and others do not see it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.export import export_module
from graphdoc.figures import Published
from tests.kit.torch_tests import TRACING
from tests.lanes import FULL

pytestmark = TRACING
ROWS = 8
ARRAYS = {
    "x": np.random.default_rng(0).standard_normal((ROWS, 4, 8)).astype(np.float32),
    "y": np.arange(ROWS) % 4,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def layer() -> nn.TransformerEncoder:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1, enable_nested_tensor=False)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = layer(), nn.Linear(8, 4)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(4))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.encoder(x, mask=self.mask).mean(1))
        return answer


def modules() -> list[nn.Module]:
    torch.manual_seed(0)
    normed = nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    return [Masked(), normed, *(nn.Sequential(nn.Flatten(), nn.Linear(32, 4), last) for last in (nn.ReLU(), nn.Tanh()))]


def made(module: nn.Module) -> Published:
    return export_module(module, functional.cross_entropy, ARRAYS)


@FULL
def test_four_threads_publish_what_one_publishes_after_the_other() -> None:
    alone = [made(module) for module in modules()]
    start = Barrier(4)

    def at_once(module: nn.Module) -> Published:
        start.wait()
        return made(module)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(at_once, modules()))
    for one, other in zip(alone, together, strict=True):
        assert (one.document, one.evaluation) == (other.document, other.evaluation)
        assert one.parameters.keys() == other.parameters.keys()
        assert all(np.array_equal(one.parameters[name], other.parameters[name]) for name in one.parameters)


class Beside(nn.Module):
    """While it is traced, another thread takes a gradient."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self.linear, self.pool = nn.Linear(8, 4), pool

    def __deepcopy__(self, _memo: object) -> "Beside":
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.pool.submit(gradient).result()
        answer: Tensor = self.linear(x.mean(1))
        return answer


def gradient() -> Tensor:
    weight = torch.ones(3, requires_grad=True)
    return torch.autograd.grad((weight * weight).sum(), [weight])[0]


def test_another_thread_takes_gradients_while_a_module_is_published() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert made(Beside(pool)).document
