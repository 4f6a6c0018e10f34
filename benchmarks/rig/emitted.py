"""One model published in a process of its own, so that its peak of memory is its own.

python -m benchmarks.rig.emitted MODEL PLACES      prints {"seconds", "cpu", "gib", "nodes", "calls"}
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.document.schema import parse_document
from graphdoc.export import export_module

ROWS: Final = 8


class Scan(nn.Module):
    """A selective state space (Mamba's) as a loop in Python over the places, eleven nodes each."""

    def __init__(self, width: int = 8, states: int = 4) -> None:
        super().__init__()
        self.entry, self.exit = nn.Linear(1, width), nn.Linear(width, 4)
        self.step, self.into, self.out = nn.Linear(width, width), nn.Linear(width, states), nn.Linear(width, states)
        self.rates = nn.Parameter(-torch.rand(width, states))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.entry(x.unsqueeze(-1))
        step, into, out = functional.softplus(self.step(hidden)).unsqueeze(-1), self.into(hidden), self.out(hidden)
        kept, added = (step * self.rates).exp(), step * into.unsqueeze(2) * hidden.unsqueeze(-1)
        state, answers = torch.zeros_like(added[:, 0]), []
        for place in range(x.shape[1]):
            state = kept[:, place] * state + added[:, place]
            answers.append((state * out[:, place].unsqueeze(1)).sum(-1))
        logits: Tensor = self.exit(torch.stack(answers, 1).mean(1))
        return logits


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.outer(self.inner(x.unsqueeze(-1))[0].mean(1))
        return logits


class Unrolled(nn.Module):
    """A cell called for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.outer = nn.GRUCell(1, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 8)
        for place in range(x.shape[1]):
            state = self.cell(x[:, place : place + 1], state)
        logits: Tensor = self.outer(state)
        return logits


def words(answer: Any, target: Tensor) -> Tensor:
    return functional.cross_entropy(answer.logits.flatten(0, 1), target.flatten())


MODELS: Final[dict[str, tuple[Callable[[], nn.Module], Callable[..., Any]]]] = {
    "gpt2": (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()), words),
    "scan": (Scan, functional.cross_entropy),
    "gru": (Recurrent, functional.cross_entropy),
    "cells": (Unrolled, functional.cross_entropy),
}


def data(name: str, places: int) -> dict[str, np.ndarray]:
    if name == "gpt2":
        tokens = np.arange(ROWS * places).reshape(ROWS, places) % transformers.GPT2Config().vocab_size
        return {"input_ids": tokens, "y": tokens}
    x = np.random.default_rng(0).standard_normal((ROWS, places)).astype(np.float32)
    return {"x": x, "y": np.arange(ROWS) % 4}


def main() -> None:
    name, places = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    build, loss = MODELS[name]
    module, arrays = build(), data(name, places)
    export_module(nn.Linear(1, 4), functional.cross_entropy, data("scan", 1))  # torch loads its tracing at the first
    began, spent = time.perf_counter(), time.process_time()
    answer = export_module(module, loss, arrays)
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    document = parse_document(answer.document)
    counts = {"nodes": len(document.nodes), "calls": document.calls}
    print(json.dumps({"seconds": seconds, "cpu": cpu, "gib": peak, **counts}))


if __name__ == "__main__":
    main()
