"""What a graph document costs: reading one of GPT-2's depth, and a step by it against the exported module's own.

The overhead is a fraction: the interpreter's forward and backward over those of torch's exported module, less one;
medians of runs that take turns in one process, on one thread.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.figure import Figure
from gradmarket.market.model.document.interpret import Program, gradients
from gradmarket.market.model.document.publish import Objective, classification, document_of, exported
from gradmarket.market.model.document.schema import load

PREFIX = "document."
RUNS = 15
SEED = bytes(32)


class Block(nn.Module):
    """A transformer block, norms first, its attention torch's own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.entry, self.exit = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.entry(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.exit(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """GPT-2's shape; `width` 384 and 6 blocks are 10.8 million parameters."""

    def __init__(self, width: int, depth: int, heads: int, words: int = 65, length: int = 256) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(hidden)))


def next_token(logits: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()), {}


def measure() -> Iterator[Figure]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokens = torch.randint(0, 65, (2, 128))
    yield _loading(Objective(GPT(48, 12, 4), next_token), {"x": tokens, "y": tokens})
    gpt = Objective(GPT(384, 6, 6), next_token)
    yield _overhead("gpt10m", gpt, {"x": tokens, "y": tokens}, "<= 0.03", "batch of 2 x 128 tokens")
    mlp = nn.Sequential(nn.Linear(64, 960), nn.ReLU(), nn.Linear(960, 960), nn.ReLU(), nn.Linear(960, 10))
    images = {"x": torch.randn(64, 64), "y": torch.randint(0, 10, (64,))}
    yield _overhead("mlp1m", Objective(mlp, classification), images, "<= 0.10", "batch of 64")
    torch.set_num_threads(before)


def _loading(objective: Objective, data: dict[str, Tensor]) -> Figure:
    """From bytes to what can run."""
    document, _ = document_of(objective.train(), data, {})
    seconds = []
    for _ in range(RUNS):
        began = time.process_time()
        Program(load(document))
        seconds.append(time.process_time() - began)
    note = f"of CPU; {len(document)} bytes, {len(load(document).nodes)} nodes"
    return Figure("document.load_ms.gpt12", 1000 * statistics.median(seconds), "ms", target="<= 10", note=note)


def _overhead(name: str, objective: Objective, data: dict[str, Tensor], target: str, note: str) -> Figure:
    document, state = document_of(objective.train(), data, {})
    ours, theirs = _by_document(document, state, data), _by_module(exported(objective, data, {}).module(), data)
    ours(), theirs()
    pairs = [(_timed(ours), _timed(theirs)) for _ in range(RUNS)]
    mine, other = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(one / two for one, two in pairs)
    told = f"{note}: {1000 * mine:.1f} ms against {1000 * other:.1f}"
    return Figure(f"document.overhead.{name}", ratio - 1, "of a step", "torch's exported module", ratio, target, told)


def _by_document(document: bytes, state: dict[str, Tensor], data: dict[str, Tensor]) -> Callable[[], Any]:
    program = Program(load(document))

    def step() -> Any:
        leaves = {entry.name: state[entry.name].detach().requires_grad_() for entry in program.document.trainable}
        return gradients(program.run(state | leaves, data, SEED).loss, list(leaves.values()))

    return step


def _by_module(module: nn.Module, data: dict[str, Tensor]) -> Callable[[], Any]:
    parameters = list(module.parameters())
    return lambda: torch.autograd.grad(module(data)[0], parameters)


def _timed(step: Callable[[], Any]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
