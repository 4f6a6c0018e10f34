"""Every part of a module is trained in the mode that it is in, as torch alone would."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.cost import pass_sizes
from graphdoc.document.bound import compute_bound
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused
from graphdoc.export import export_module
from tests.graphdoc.own_bits import by_document, by_module, differences
from tests.kit.torch_tests import TRACING
from tests.lanes import leave_to_full

pytestmark = TRACING
X = torch.from_numpy(np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32))
Y = torch.arange(8) % 4


def stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.LSTM(16, 8, 2, dropout=0.5), First(), nn.Linear(8, 4)
    )


class First(nn.Module):
    def forward(self, answer: tuple[Tensor, object]) -> Tensor:
        return answer[0]


class KeptFrozen(nn.Sequential):
    """Its norm is frozen whenever the rest is put into training, as detectors write it."""

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        self[1].eval()
        return self


def all_evaluated() -> nn.Module:
    return stack().eval()


def norm_evaluated() -> nn.Module:
    module = stack()
    module[1].eval()
    with torch.no_grad():
        module[1].running_mean.fill_(0.5)  # type: ignore[operator, union-attr]
    return silent(module)


def norm_kept_evaluated() -> nn.Module:
    return silent(KeptFrozen(*stack()).train())


def silent(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, nn.Dropout | nn.LSTM):
            part.eval()
    return module


def only_norm_trained() -> nn.Module:
    module = stack().eval()
    module[1].train()
    return module


MODES: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "all in evaluation": (all_evaluated, False),
    "a norm in evaluation": (norm_evaluated, False),
    "a norm that its module keeps so": (norm_kept_evaluated, False),
    "a norm alone in training": (only_norm_trained, True),
}


@pytest.mark.parametrize(("build", "moves"), leave_to_full(MODES.values()), ids=MODES.keys())
def test_training_is_in_the_modules_own_modes(build: Callable[[], nn.Module], moves: bool) -> None:
    module = build()
    modes = [part.training for part in module.modules()]
    made = export_module(module, functional.cross_entropy, {"x": X.numpy(), "y": Y.numpy()})
    document = parse_document(made.document)
    assert bool(document.updates) is moves
    assert not document.draws
    assert [part.training for part in module.modules()] == modes
    assert not differences(
        by_document(made, {"x": X, "y": Y}), by_module(module, functional.cross_entropy, {"x": X, "y": Y})
    )


@pytest.mark.parametrize("silenced", leave_to_full([nn.Dropout, nn.LSTM]))
def test_a_dropout_in_evaluation_draws_nothing_while_the_others_draw(silenced: type[nn.Module]) -> None:
    module = stack()
    for part in module.modules():
        if isinstance(part, silenced):
            part.eval()
    document = parse_document(
        export_module(module, functional.cross_entropy, {"x": X.numpy(), "y": Y.numpy()}).document
    )
    assert [node.op for node in document.written].count("dropout.hash") == 1


def test_evaluation_is_in_evaluation_whatever_the_modes() -> None:
    document = parse_document(
        export_module(stack(), functional.cross_entropy, {"x": X.numpy(), "y": Y.numpy()}).evaluation
    )
    assert not document.updates
    assert not document.draws


@pytest.mark.parametrize(
    ("rows", "microbatch", "fits"), leave_to_full([(8, 4, True), (9, 4, False), (10, 4, True), (1, None, False)], 2)
)
def test_a_last_microbatch_of_one_row_under_a_batch_norm_is_refused_before_it_is_posted(
    rows: int, microbatch: int | None, fits: bool
) -> None:
    made = export_module(stack(), functional.cross_entropy, {"x": X.numpy(), "y": Y.numpy()})
    with nullcontext() if fits else pytest.raises(DocumentRefused, match="two rows or more"):
        compute_bound(Program(parse_document(made.document)), pass_sizes(rows, microbatch or rows))
