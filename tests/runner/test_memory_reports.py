"""A task's bounded memory is that of its child, from the first step on and at every later one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep, Step
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc.cost import evaluation_cost, evaluation_sizes
from graphdoc.document.publish import compute_classification_loss, publish_module

pytestmark = pytest.mark.full
WIDTH = 2000
"""Parameters are most of the memory: 16 MB a matrix."""


@pytest.fixture(scope="module")
def model() -> tuple[bytes, dict[str, np.ndarray]]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, WIDTH), *(nn.Linear(WIDTH, WIDTH) for _ in range(2)), nn.Linear(WIDTH, 4))
    made = publish_module(module, compute_classification_loss, (torch.randn(4, 16), torch.arange(4)))
    return made.document, made.parameters


def peak(pid: int | None) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


STEPS: dict[str, Step] = {
    "one pass": GradientStep(rows=8),
    "microbatches": GradientStep(rows=8, microbatch=4),
    "local": LocalStep(kind="local", rows=8, steps=2, optimizer=InnerOptimizer(name="adamw", lr=0.1)),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_steps_and_an_evaluation_stay_within_the_bounded_memory(
    model: tuple[bytes, dict[str, np.ndarray]], step: Step
) -> None:
    document, state = model
    rows = step.moves * step.rows
    batch = {"x": np.ones((rows, 16), np.float32), "y": np.zeros(rows, np.int64)}
    with Runner(RunnerSettings(memory_bytes=16 * 2**30, seconds=600.0)) as runner:
        loaded = runner.load(document)
        told = compute_task_cost(loaded, runner.bound(*step.pass_sizes), step).memory
        shares = []
        for _ in range(3):
            runner.compute(state, batch, bytes(32), step)
            shares.append(told / peak(runner.pid))
        measured = runner.bound_evaluation(document, *evaluation_sizes(rows))
        assert evaluation_cost(loaded, measured, rows).memory <= told
        runner.evaluate(document, state, batch)
        shares.append(told / peak(runner.pid))
    assert all(1.0 <= share <= 1.3 for share in shares), shares


def test_denormals_are_zero() -> None:
    """Beside 1 they are nothing, and take up to 48 times as long."""
    module = nn.Linear(4, 4)
    made = publish_module(module, lambda h, y: ((h * y).mean(), {}), (torch.randn(4, 4), torch.randn(4, 4)))
    with Runner(RunnerSettings(memory_bytes=4 * 2**30, seconds=60.0)) as runner:
        runner.load(made.document)
        tiny, one = np.full((4, 4), 1e-40, np.float32), np.ones((4, 4), np.float32)
        answer = runner.compute(made.parameters, {"x": tiny, "y": one}, bytes(32), GradientStep(rows=4))
    assert not answer["weight"].any()
    assert answer["bias"].all()
