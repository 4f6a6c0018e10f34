"""One warm runner for the tests that only ask, and documents to ask about."""

from collections.abc import Iterator

import numpy as np
import pytest

from gradmarket.runner import Runner, RunnerSettings
from graphdoc.figures import Published
from tests.handmade import IMAGES, VECTORS

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    with Runner(RunnerSettings(memory_bytes=2**30, seconds=60.0)) as runner:
        runner.turn("", publishes=True)
        yield runner


@pytest.fixture(scope="session")
def mlp(runner: Runner) -> Published:
    return runner.publish("mlp", {"hidden": [32], "dropout": 0.25}, VECTORS, seed=1)


@pytest.fixture(scope="session")
def cnn(runner: Runner) -> Published:
    return runner.publish("cnn", {"channels": [4, 8]}, IMAGES, seed=1)


@pytest.fixture(scope="session")
def digits() -> Arrays:
    """Sixty-four rows of noise with labels."""
    generator = np.random.default_rng(3)
    return {"x": generator.standard_normal((64, 64)).astype(np.float32), "y": generator.integers(0, 10, 64)}


@pytest.fixture(scope="session")
def images(digits: Arrays) -> Arrays:
    return {"x": digits["x"].reshape(64, 1, 8, 8), "y": digits["y"]}
