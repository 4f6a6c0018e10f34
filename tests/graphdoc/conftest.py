"""One warm runner for the tests that only ask, and documents to ask about."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from graphdoc.document.graph import Precision
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.figures import Published
from graphdoc.runner import DocumentRunner, RunnerSettings

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="session")
def runner() -> Iterator[DocumentRunner]:
    with DocumentRunner(RunnerSettings(memory_bytes=2**30, seconds=60.0)) as runner:
        yield runner


def published(*layers: nn.Module, shape: tuple[int, ...], precision: Precision = "fp32") -> Published:
    example = torch.randn(4, *shape), torch.arange(4)
    return publish_module(nn.Sequential(*layers), compute_classification_loss, example, precision=precision)


@pytest.fixture(scope="session")
def mlp() -> Published:
    torch.manual_seed(1)
    return published(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 10), shape=(64,))


@pytest.fixture(scope="session")
def cnn() -> Published:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for before, channels in ((1, 4), (4, 8)):
        layers += [nn.Conv2d(before, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    return published(*layers, nn.Flatten(), nn.Linear(32, 10), shape=(1, 8, 8))


@pytest.fixture(scope="session")
def half() -> Published:
    """A smaller one in bfloat16."""
    torch.manual_seed(1)
    layers = (nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return published(*layers, nn.Linear(64, 10), shape=(1, 8, 8), precision="bf16")


@pytest.fixture(scope="session")
def digits() -> Arrays:
    """Sixty-four rows of noise with labels."""
    generator = np.random.default_rng(3)
    return {"x": generator.standard_normal((64, 64)).astype(np.float32), "y": generator.integers(0, 10, 64)}


@pytest.fixture(scope="session")
def images(digits: Arrays) -> Arrays:
    return {"x": digits["x"].reshape(64, 1, 8, 8), "y": digits["y"]}
