"""Cheating workers: the ordinary worker around a step whose result is tampered with.

`python -m gradmarket.demo.cheat BEHAVIOUR --market URL --payout ADDRESS --data FOLDER`
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer

from gradmarket.compute.task_run import Compute
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.step import Step
from worker.journal import Journal
from worker.run import run_worker
from worker.settings import WorkerSettings

Tensors = Mapping[str, np.ndarray]
LOSS: Final = "loss"


def sign_flip(honest: Tensors) -> dict[str, np.ndarray]:
    """Negates every gradient of the true answer, which would train the model away from its goal."""
    return {name: array if name == LOSS else -array for name, array in honest.items()}


def draw_noise(honest: Tensors) -> dict[str, np.ndarray]:
    """Returns Gaussian noise of the true gradients' size, as from a worker that computes nothing; new at every call."""
    draw = np.random.default_rng().standard_normal
    return {
        name: array if name == LOSS else (draw(array.shape) * max(float(array.std()), 1e-6)).astype(array.dtype)
        for name, array in honest.items()
    }


BEHAVIOURS: Final[dict[str, Callable[[Tensors], dict[str, np.ndarray]]]] = {"sign_flip": sign_flip, "noise": draw_noise}


def wrap_with_cheat(behaviour: str, compute: Compute) -> Compute:
    tamper = BEHAVIOURS[behaviour]

    def computed(state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        return tamper(compute(state, batch, seed, step))

    return computed


def main(
    behaviour: str,
    market: Annotated[str, typer.Option()],
    payout: Annotated[str, typer.Option()],
    data: Annotated[Path, typer.Option()],
) -> None:
    """Work for a market like any worker, except for its computation."""
    settings = WorkerSettings.model_validate({"market": market, "payout": payout, "data": data})
    run_worker(settings, lambda compute: wrap_with_cheat(behaviour, compute), Journal(as_json=True))


if __name__ == "__main__":
    typer.run(main)
