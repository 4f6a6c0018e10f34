"""The trained models: digits by a small convolutional network, the next character of Python by a small GPT."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor, nn

from benchmarks.size import sized
from gradmarket.market import sampling
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.step import GradientStep
from gradmarket.ready_data.digits import load_table
from gradmarket.runner.architectures import cnn, gpt
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.publish import Loss, compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.passes import evaluate

SEED: Final = bytes(32)
TEST_EVERY: Final = 5
BLOCK: Final = 64
CONTEXT: Final = 64
SOURCES: Final = Path(asyncio.__file__).parent
"""Half a million characters of the standard library."""
MEASURED: Final = 256
"""Held-out rows of characters: a sixth of them, or measuring would take as long as training."""
ROUNDS: Final = sized(30, 4)
BEFORE: Final = sized(250, 2)
"""Steps of plain training before the market's, so that an attack finds something to spoil."""
KEPT: Final = 48
"""Rounds whose gradients are stored, for repeated rounds."""


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
    loss: Loss = compute_classification_loss


class Trained:
    """The workload's documents, ready to run: the workers' step, and the requester's measurement."""

    def __init__(self, workload: Workload) -> None:
        torch.manual_seed(0)
        example = tuple(torch.from_numpy(workload.data[name][:2]) for name in ("x", "y"))
        published = publish_module(workload.module(), workload.loss, (example[0], example[1]))
        self.workload, self.parameters = workload, published.parameters
        self._kept: OrderedDict[tuple[int, bytes], list[dict[str, np.ndarray]]] = OrderedDict()
        self._program = Program(parse_document(published.document))
        self._evaluation = Program(parse_document(published.evaluation))
        self.layout = build_layout(self._program.document)

    def round(self, state: Arrays, number: int, tasks: int) -> list[dict[str, np.ndarray]]:
        """The answers to all tasks of a round; at once where they are known from before."""
        digest = blake3()
        for name in sorted(state):
            digest.update(np.ascontiguousarray(state[name]).tobytes())
        place = number, digest.digest()
        if place not in self._kept:
            self._kept[place] = [self.answer(state, number, task) for task in range(tasks)]
        self._kept.move_to_end(place)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[place]

    def answer(self, state: Arrays, round_number: int, task: int, flipped: bool = False) -> dict[str, np.ndarray]:
        """Of the rows that the rule draws for this task; `flipped`: label l read as the last label less l."""
        data, rows = self.workload.data, self.workload.rows
        chosen = sampling.draw_shuffled_rows(SEED, round_number, task, len(data["y"]), rows)
        y = data["y"][chosen]
        batch = {"x": data["x"][chosen], "y": self.workload.classes - 1 - y if flipped else y}
        return compute_step(self._program, state, batch, SEED, GradientStep(rows=rows))

    def accuracy(self, state: Arrays) -> float:
        """Of the held-out rows, in points."""
        return 100.0 * evaluate(self._evaluation, state, self.workload.held_out).values["accuracy"]


@cache
def digits() -> Trained:
    rows = load_table()
    images = (rows[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    data, held_out = _divided(images, rows[:, -1].astype(np.int64))
    network = partial(cnn.build, {"channels": [8, 16]}, (1, 8, 8), 10)
    return Trained(Workload("cnn", network, data, held_out, 10, 16, ROUNDS, "sgd", 0.1, {"momentum": 0.9}))


@cache
def characters() -> Trained:
    text = "".join(filter(str.isascii, "".join(path.read_text() for path in sorted(SOURCES.glob("*.py")))))
    alphabet, codes = np.unique(list(text), return_inverse=True)
    rows = (len(codes) - 1) // CONTEXT
    x, y = (codes[start : start + rows * CONTEXT].reshape(rows, CONTEXT).astype(np.int64) for start in (0, 1))
    data, held_out = _divided(x, y)
    held_out = {name: array[:MEASURED] for name, array in held_out.items()}
    begun, kinds = partial(_begun, data, len(alphabet)), len(alphabet)
    return Trained(Workload("gpt", begun, data, held_out, kinds, 4, ROUNDS, "adamw", 0.001, loss=next_character))


def _begun(data: Arrays, characters: int) -> nn.Module:
    """A model with BEFORE steps of 64 rows behind it."""
    model = gpt.build({"depth": 2, "width": 64, "heads": 4}, (CONTEXT,), characters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for number in range(BEFORE):
        chosen = sampling.draw_shuffled_rows(SEED, number, 0, len(data["y"]), 64)
        loss, _ = next_character(model(torch.from_numpy(data["x"][chosen])), torch.from_numpy(data["y"][chosen]))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return model


def next_character(logits: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Of logits float32[rows, length, characters]: the cross-entropy, and each row's share of right answers, added."""
    loss, _ = gpt.OBJECTIVE(logits, target)
    return loss, {"accuracy": logits.argmax(2).eq(target).float().mean(1).sum()}


def _divided(x: np.ndarray, y: np.ndarray) -> tuple[Arrays, Arrays]:
    """To train on, and held out: every fifth block of 64 neighbours."""
    held_out = np.arange(len(y)) // BLOCK % TEST_EVERY == 0
    return {"x": x[~held_out], "y": y[~held_out]}, {"x": x[held_out], "y": y[held_out]}
