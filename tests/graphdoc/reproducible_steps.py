"""Prints digests of two training steps of three models: `python reproducible_steps.py THREADS...`, one JSON object.

Under each number of threads, in reproducible and in native arithmetic; the environment sets the vector width.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.reproducible.mode import compute_reproducibly

WORDS = 33


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, places, width = x.shape
        parts = self.attention(self.before(x)).view(rows, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(rows, places, width))
        return x + self.down(functional.gelu(self.up(self.after(x))))


class Gpt(nn.Module):
    def __init__(self, width: int = 48, heads: int = 3, blocks: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(24, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(hidden))).transpose(1, 2)


def build_cases() -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """Returns each model with its rows and targets, drawn by numpy: torch's draws depend on the vector width."""
    generator = np.random.default_rng(5)

    def draw(*shape: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(shape).astype(np.float32))

    mlp = nn.Sequential(nn.Linear(1100, 130), nn.Tanh(), nn.Linear(130, 60), nn.SiLU(), nn.Linear(60, 10))
    cnn = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(8, 12, 3, stride=2, groups=2, bias=False), nn.GroupNorm(3, 12), nn.GELU(approximate="tanh")),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 10)),
    )
    labels = torch.from_numpy(generator.integers(0, 10, 70))
    words = torch.from_numpy(generator.integers(0, WORDS, (9, 25)))
    gpt = Gpt()
    for parameter in (*mlp.parameters(), *cnn.parameters(), *gpt.parameters()):
        parameter.data = draw(*parameter.shape) * 0.1
    return {
        "mlp": (mlp, draw(70, 1100), labels),
        "cnn": (cnn, draw(70, 3, 13, 13), labels),
        "gpt": (gpt, words[:, :-1], words[:, 1:]),
    }


def compute_steps(model: nn.Module, rows: Tensor, targets: Tensor, reproducible: bool) -> str:
    """Returns the digest of two steps' losses and gradients, and of the parameters after them under AdamW."""
    state = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    hashed = hashlib.sha256()
    with compute_reproducibly() if reproducible else nullcontext():
        optimizer = torch.optim.AdamW(state.values(), lr=1e-3, foreach=False)
        for _ in range(2):
            buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
            optimizer.zero_grad()
            loss = functional.cross_entropy(torch.func.functional_call(model, state | buffers, (rows,)), targets)
            loss.backward()
            optimizer.step()
            for tensor in (loss, *(leaf.grad for leaf in state.values()), *state.values()):
                hashed.update(np.ascontiguousarray(tensor.detach().numpy()).tobytes())
    return hashed.hexdigest()


def compute_all(threads: Sequence[int]) -> dict[str, list[str]]:
    """Returns each model's digests by reproducible and by native arithmetic, by its name and the number of threads."""
    found = {}
    torch.set_flush_denormal(True)
    for name, case in build_cases().items():
        for count in threads:
            torch.set_num_threads(count)
            found[f"{name}/{count}"] = [compute_steps(*case, reproducible) for reproducible in (True, False)]
    torch.set_flush_denormal(False)
    return found


if __name__ == "__main__":
    print(json.dumps(compute_all([int(given) for given in sys.argv[1:]])))
