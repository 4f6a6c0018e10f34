"""False accepts and false rejects of the tolerance verifier on real gradients of the ready architectures.

Two honest classes compute each question: one thread, and two threads without oneDNN over rows in the opposite order.
`python -m benchmarks.tolerance > docs/results/tolerance.md` writes the page.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import nn

from benchmarks.figure import Figure
from benchmarks.simulations.lies import Gradient, Question, Table, table
from benchmarks.size import sized
from gradmarket.market.errors import JobRefused
from gradmarket.market.features.tolerance import RUNS
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.step import GradientStep
from gradmarket.runner.architectures import cnn, mlp
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document

PREFIX = "tolerance."
ROWS = sized(256, 16)
JUDGED = sized(10, 2)
DRAWS = sized(10, 1)
SHAPE = (1, 8, 8)
CLASSES = 10
RATE = 0.1
QUESTIONS = RUNS + JUDGED
CODECS = ("fp32", "bf16")
HEAD = f"""# Which lies the tolerance verifier believes

Made by `python -m benchmarks.tolerance > docs/results/tolerance.md`: {QUESTIONS} tasks of {ROWS} rows a model, {RUNS}
of them to calibrate on, the others judged under {DRAWS} seeds for each lie. Two honest workers compute each
task: one thread, and two threads without oneDNN over the rows in the opposite order. *Parted* counts honest
pairs that did not agree, *believed* lies that agreed with an honest answer. *Over the threshold* is the largest
tensor's deviation in thresholds: the largest of honest pairs, the smallest of lies; at 1 the verdict turns.
"One small tensor" is off by a twentieth.
"""


@dataclass(frozen=True)
class Bench:
    """One model and its program."""

    program: Program
    state: dict[str, np.ndarray]

    def answer(self, threads: int, question: Question) -> Gradient:
        order = slice(None, None, 1 if threads == 1 else -1)
        batch: Arrays = {"x": question.x[order].copy(), "y": question.y[order].copy()}
        torch.set_num_threads(threads)
        with torch.backends.mkldnn.flags(enabled=threads == 1):
            found = compute_step(self.program, question.state, batch, bytes(32), GradientStep(rows=ROWS))
        torch.set_num_threads(1)
        return {name: np.atleast_1d(value) for name, value in found.items()}

    def questions(self, count: int) -> Iterator[Question]:
        """A walk of gradient steps over made-up images, a question at each."""
        generator = np.random.default_rng(11)
        centres = generator.standard_normal((CLASSES, *SHAPE))
        state = before = self.state
        for _ in range(count):
            y = generator.integers(0, CLASSES, ROWS)
            x = (centres[y] + generator.standard_normal((ROWS, *SHAPE))).astype(np.float32)
            question = Question(state, before, x, y)
            yield question
            step = self.answer(1, question)
            before, state = state, {name: _moved(value, step.get(name)) for name, value in state.items()}


def _moved(value: np.ndarray, gradient: np.ndarray | None) -> np.ndarray:
    return value if gradient is None else (value - np.float32(RATE) * gradient.reshape(value.shape)).astype(value.dtype)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: mlp.build({"hidden": [64, 64]}, SHAPE, CLASSES),
    "cnn without BatchNorm": lambda: cnn.build({"channels": [8, 16], "batch_norm": False}, SHAPE, CLASSES),
    "cnn": lambda: cnn.build({"channels": [8, 16]}, SHAPE, CLASSES),
}


def bench(module: nn.Module) -> Bench:
    published = publish_module(module, compute_classification_loss, (torch.randn(4, *SHAPE), torch.arange(4)))
    return Bench(Program(parse_document(published.document)), dict(published.parameters))


def tables() -> Iterator[tuple[str, str, Table | str]]:
    """(model, codec, its table, or the reason that it has none)."""
    for name, build in islice(MODELS.items(), sized(None, 1)):
        torch.manual_seed(3)
        made = bench(build())
        answers = (partial(made.answer, 1), partial(made.answer, 2))
        for carried in CODECS:
            try:
                yield name, carried, table(made.questions(QUESTIONS), answers, load_codec(carried), DRAWS)
            except JobRefused as refusal:
                yield name, carried, refusal.detail


def measure() -> Iterator[Figure]:
    found = [each for _, _, each in tables() if isinstance(each, Table)]
    lines = [line for each in found for line in each.lines]
    honest = [line for line in lines if line.name == "honest"]
    lies = [line for line in lines if line.name != "honest"]
    for name, kind in (("tolerance.false_rejects", honest), ("tolerance.false_accepts", lies)):
        mistakes, draws = sum(line.mistakes for line in kind), sum(line.draws for line in kind)
        yield Figure(name, mistakes / draws, "of draws", target="<= 0.001", note=f"{mistakes} of {draws}")


def page() -> str:
    parts = [HEAD]
    for model, carried, found in tables():
        parts.append(f"\n## {model}, {carried}\n")
        if isinstance(found, str):
            parts.append(f"\nRefused: {found}.\n")
            continue
        parts.append(f"\nHonest answers: at most {found.largest:.1e} apart; largest threshold {found.threshold:.1e}.\n")
        parts.append("\nParted or believed, and over the threshold:\n\n")
        parts += [f"- {line.name}: {line.mistakes} of {line.draws}, {line.nearest:.2g}\n" for line in found.lines]
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
