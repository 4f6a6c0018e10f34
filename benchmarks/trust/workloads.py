"""What is trained: digits by a small convolutional network, the licence's next character by a small transformer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.model import sampling
from gradmarket.market.model.architectures import cnn
from gradmarket.market.model.compute import compute, evaluate
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.document.publish import classification, publish
from gradmarket.market.model.document.schema import load
from gradmarket.market.model.layout import layout
from gradmarket.market.step import GradientStep

SEED: Final = bytes(32)
TEST_EVERY: Final = 5
BLOCK: Final = 64
CONTEXT: Final = 8


@dataclass(frozen=True)
class Workload:
    """A published model with its data: `x` and `y` to train on, `held_out` to measure by; `rows` a task."""

    name: str
    module: Callable[[], nn.Module]
    data: Arrays
    held_out: Arrays
    classes: int
    rows: int
    rounds: int
    optimizer: str
    lr: float
    settings: Mapping[str, float] = field(default_factory=dict)


class Trained:
    """The workload's documents, ready to run: what a worker computes, and what the requester measures."""

    def __init__(self, workload: Workload) -> None:
        torch.manual_seed(0)
        example = tuple(torch.from_numpy(workload.data[name][:2]) for name in ("x", "y"))
        published = publish(workload.module(), classification, (example[0], example[1]))
        self.workload, self.parameters = workload, published.parameters
        self._program = Program(load(published.document))
        self._evaluation = Program(load(published.evaluation))
        self.layout = layout(self._program.document)

    def answer(self, state: Arrays, round_number: int, task: int, flipped: bool = False) -> dict[str, np.ndarray]:
        """Of the rows that the rule draws for this task; `flipped`: label l read as the last label less l."""
        data, rows = self.workload.data, self.workload.rows
        chosen = sampling.rows(SEED, round_number, task, len(data["y"]), rows)
        y = data["y"][chosen]
        batch = {"x": data["x"][chosen], "y": self.workload.classes - 1 - y if flipped else y}
        return compute(self._program, state, batch, SEED, GradientStep(rows=rows))

    def accuracy(self, state: Arrays) -> float:
        """Of the held-out rows, in points."""
        return 100.0 * evaluate(self._evaluation, state, self.workload.held_out).values["accuracy"]


class Transformer(nn.Module):
    """A block of causal attention over CONTEXT characters, one-hot; logits for the character after the last."""

    def __init__(self, characters: int, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.token = nn.Linear(characters, width, bias=False)
        self.place = nn.Parameter(0.1 * torch.randn(CONTEXT, width))
        self.block = Block(width, heads)
        self.head = nn.Linear(width, characters)

    def forward(self, x: Tensor) -> Tensor:
        """float32[rows, CONTEXT, characters] -> float32[rows, characters]."""
        return self.head(self.block(self.token(x) + self.place)[:, -1])  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.outer = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("future", torch.triu(torch.full((CONTEXT, CONTEXT), -1e4), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attended(self.before(x))
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))  # type: ignore[no-any-return]

    def _attended(self, x: Tensor) -> Tensor:
        query, key, value = (
            part(x).reshape(-1, CONTEXT, self.heads, x.shape[-1] // self.heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(2, 3)) * self.scale + self.future
        mixed = torch.matmul(scores.softmax(-1), value)
        return self.outer(mixed.transpose(1, 2).reshape(-1, CONTEXT, x.shape[-1]))  # type: ignore[no-any-return]


@cache
def digits() -> Trained:
    images, labels = load_digits(return_X_y=True)
    data, held_out = _divided((images.reshape(-1, 1, 8, 8) / 16).astype(np.float32), labels.astype(np.int64))
    network = partial(cnn.build, {"channels": [8, 16]}, (1, 8, 8), 10)
    return Trained(Workload("digits", network, data, held_out, 10, 16, 30, "sgd", 0.1, {"momentum": 0.9}))


@cache
def characters() -> Trained:
    text = np.frombuffer((Path(__file__).parents[2] / "LICENSE").read_bytes(), np.uint8)
    alphabet, codes = np.unique(text, return_inverse=True)
    windows = np.lib.stride_tricks.sliding_window_view(codes.astype(np.int64), CONTEXT + 1)[:: CONTEXT // 4]
    x = np.eye(len(alphabet), dtype=np.float32)[windows[:, :-1]]
    data, held_out = _divided(x, windows[:, -1].copy())
    network = partial(Transformer, len(alphabet))
    return Trained(Workload("characters", network, data, held_out, len(alphabet), 16, 40, "adamw", 0.01))


def _divided(x: np.ndarray, y: np.ndarray) -> tuple[Arrays, Arrays]:
    """To train on, and held out: every fifth block of 64 neighbours."""
    held_out = np.arange(len(y)) // BLOCK % TEST_EVERY == 0
    return {"x": x[~held_out], "y": y[~held_out]}, {"x": x[held_out], "y": y[held_out]}
