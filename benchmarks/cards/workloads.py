"""The documents that a card is checked and measured with, by name."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from gradmarket.runner.architectures import gpt
from graphdoc.document.graph import Precision
from graphdoc.document.publish import compute_classification_loss, next_token, publish_module
from graphdoc.figures import Published

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Workload:
    """A published model with a batch of its rows."""

    name: str
    model: Published
    batch: Arrays


class _LastOutput(nn.Module):
    def __init__(self, recurrence: nn.RNNBase) -> None:
        super().__init__()
        self.recurrence = recurrence

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.recurrence(rows)[0]
        return outputs[:, -1]


def list_workloads() -> Iterator[Workload]:
    """Yields small models of each kind of kernel, each published in under a second or two."""
    torch.manual_seed(7)
    images = (torch.randn(16, 1, 8, 8), torch.arange(16) % 10)
    rows = (torch.randn(16, 64), torch.arange(16) % 10)
    steps = (torch.randn(16, 9, 12), torch.arange(16) % 10)
    layers = (nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(128), nn.Linear(128, 10))
    convolutions = (nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3))
    yield _classify("mlp", nn.Sequential(*layers), rows)
    yield _classify("mlp_bf16", nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)), rows, "bf16")
    yield _classify("mlp_tf32", nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)), rows, "tf32")
    yield _classify("cnn", nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(64, 10)), images)
    yield _classify("gru", nn.Sequential(_LastOutput(nn.GRU(12, 24, batch_first=True)), nn.Linear(24, 10)), steps)
    yield _classify("lstm", nn.Sequential(_LastOutput(nn.LSTM(12, 24, batch_first=True)), nn.Linear(24, 10)), steps)
    yield make_gpt("gpt", 8, 32, 97, depth=2, width=64, heads=4)


def make_gpt(name: str, rows: int, length: int, words: int, precision: Precision = "fp32", **sizes: int) -> Workload:
    """Returns a decoder on tokens that a rule draws."""
    tokens = torch.arange(rows * length).reshape(rows, length) * 7919 % words
    example = tokens[:2], tokens[:2]
    model = publish_module(build_gpt(length, words, **sizes), next_token, example, precision=precision)
    return Workload(name, model, {"x": tokens.numpy(), "y": tokens.roll(-1, 1).numpy().copy()})


def build_gpt(length: int, words: int, **sizes: int) -> nn.Module:
    """Returns the same module each time."""
    torch.manual_seed(7)
    return gpt.build(sizes, (length,), words)


def _classify(
    name: str, module: nn.Module, example: tuple[torch.Tensor, torch.Tensor], precision: Precision = "fp32"
) -> Workload:
    model = publish_module(module, compute_classification_loss, example, precision=precision)
    return Workload(name, model, {"x": example[0].numpy(), "y": example[1].numpy()})
