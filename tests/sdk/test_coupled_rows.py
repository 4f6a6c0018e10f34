"""A loss that compares rows with each other is another objective in parts, and the requester is warned."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gradmarket.coupled_rows import describe_coupling
from gradmarket.market.job import JobSpec
from gradmarket.sdk.model import warn_of_coupled_rows
from graphdoc.export import export_module
from tests.kit.torch_tests import TRACING
from tests.lanes import leave_to_full

pytestmark = TRACING
ROWS = 16
X = np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)
LABELS = np.arange(ROWS) % 2
TIMES = np.random.default_rng(1).uniform(1, 9, ROWS).astype(np.float32)


def clip(h: Tensor, _: Tensor) -> Tensor:
    images, texts = functional.normalize(h[:, :2]), functional.normalize(h[:, 2:])
    scores = images @ texts.t() * 5
    places = torch.arange(h.shape[0])
    return (functional.cross_entropy(scores, places) + functional.cross_entropy(scores.t(), places)) / 2


def vicreg(h: Tensor, _: Tensor) -> Tensor:
    return functional.relu(1 - h.std(0)).mean() + (h - h.mean(0)).square().mean()


def hardest(h: Tensor, y: Tensor) -> Tensor:
    """The farthest row of the same class against the nearest of another."""
    apart = (h.unsqueeze(1) - h.unsqueeze(0)).square().sum(-1)
    same = y.unsqueeze(1) == y.unsqueeze(0)
    far = torch.where(same, apart, 0.0).amax(1)
    near = torch.where(same, 1e3, apart).amin(1)
    return functional.softplus(far - near).mean()


def cox(h: Tensor, time: Tensor) -> Tensor:
    risk = h[:, 0]
    still = time.unsqueeze(0) >= time.unsqueeze(1)
    return (torch.where(still, risk.unsqueeze(0), -1e9).logsumexp(1) - risk).mean()


def soft_f1(h: Tensor, y: Tensor) -> Tensor:
    found = h[:, 0].sigmoid()
    return 1 - 2 * (found * y).sum() / (found + y).sum()


COUPLED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], np.ndarray]] = {
    "clip": (clip, LABELS),
    "vicreg": (vicreg, LABELS),
    "batch-hard": (hardest, LABELS),
    "cox": (cox, TIMES),
    "soft f1": (soft_f1, LABELS),
}
APART: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], np.ndarray]] = {
    "cross-entropy": (functional.cross_entropy, LABELS),
    "class weights": (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 1.0, 1.0])), LABELS),
    "ignored targets": (lambda h, y: functional.cross_entropy(h, y, ignore_index=1), np.arange(ROWS) % 3),
    "squares": (lambda h, t: functional.mse_loss(h[:, 0], t), TIMES),
}


def spec(tasks: int = 1, rows: int = 8, microbatch: int | None = None) -> JobSpec:
    digest = f"blake3:{'0' * 64}"
    return JobSpec.model_validate(
        {
            "name": "rows",
            "model": {"document": digest, "parameters": digest},
            "data": {"manifest": digest},
            "step": {"rows": rows, "microbatch": microbatch},
            "tasks_per_round": tasks,
            "optimizer": {"name": "sgd", "lr": 0.1},
            "rounds": 1,
            "seed": 1,
            "price": "1",
        }
    )


class Net(nn.Sequential):
    """With a norm and a dropout, which are no part of the question."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 4))


def collect_warnings(loss: Any, y: np.ndarray, job: JobSpec) -> list[str]:
    arrays = {"x": X, "y": y}
    made = export_module(Net(), loss, arrays)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_coupled_rows(made, arrays, job)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(("loss", "y"), leave_to_full(COUPLED.values()), ids=COUPLED.keys())
def test_a_loss_that_compares_rows_warns_where_rows_are_split(loss: Any, y: np.ndarray) -> None:
    (said,) = collect_warnings(loss, y, spec(tasks=2))
    assert "compares rows with each other" in said
    assert "the 8 rows of a task" in said


@pytest.mark.parametrize(("loss", "y"), APART.values(), ids=APART.keys())
def test_a_mean_over_rows_is_not(loss: Any, y: np.ndarray) -> None:
    assert collect_warnings(loss, y, spec(tasks=2, microbatch=4)) == []


def test_the_warning_names_the_parts_and_is_empty_where_there_is_one() -> None:
    assert "the 4 rows of a microbatch" in describe_coupling((1.0, 2.0), spec(microbatch=4).step, 1)
    assert describe_coupling((1.0, 2.0), spec().step, 1) == ""
