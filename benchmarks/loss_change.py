"""False rejects and false accepts of `loss_change`, of one score and of a sequence, on real gradients.

An honest worker computes without oneDNN and over the rows in the opposite order, the auditor and the lies with it.
`python -m benchmarks.loss_change > docs/results/loss_change.md` writes the page.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import nn

from benchmarks.figure import Figure
from benchmarks.simulations.lies import Gradient, Question
from benchmarks.simulations.scores import AUDITS, HONEST, TRUSTED, Passed, ScoreRow, Trial, lines, scores
from benchmarks.size import sized
from gradmarket.market.features.loss_change import ALPHA, BETA, RUNS, WINDOW
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.step import GradientStep
from gradmarket.market.wire.audit_messages import OTHER_DRAWS
from gradmarket.ready_data.digits import load_table
from gradmarket.runner.architectures import cnn, gpt, mlp
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, next_token, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.passes import evaluate

PREFIX = "loss_change."
ROWS = 64
TASKS = sized(240, AUDITS + RUNS)
RATE = 0.1
SHAPE = (1, 8, 8)
CLASSES = 10
WORDS, LENGTH, TEXTS = 32, 16, 1500
SEEN = ("noise", "zero", "sign flipped", "another task's rows")
"""Attacks that the page claims to stop."""
HEAD = f"""# Which lies `loss_change` sees

Made by `python -m benchmarks.loss_change > docs/results/loss_change.md`: {TASKS} tasks of {ROWS} rows a model, one
a round, by gradient steps from its first parameters. A score holds the loss on the task's own rows against
{OTHER_DRAWS} other draws of rows. *Passed* is the share of scores that do; an answer without knowledge of the rows
passes once in {1 + OTHER_DRAWS}. A sequence is {AUDITS} audits of one worker, begun at every task from the {RUNS}th
on, so that sequences overlap; the honest share comes from the trusted runs before, at most {WINDOW}. *Convicted* is the
share of sequences that end so, after the median number of audits. One whole test is made to convict an honest worker
with probability {ALPHA:g}, and to clear one that knows nothing of the rows with {BETA:g}.

It sees an answer that does not depend on the task's rows. It does **not** see one that does: older parameters,
fewer rows, another length, a backdoor in a few rows. Who computes a quarter of the rows saves three quarters of the
work and mostly passes. So `loss_change` is for jobs where nothing better can be had: where a second machine gives
the same bits use `exact`, where it comes near them `tolerance`, which see these lies ([tolerance.md](tolerance.md)).
"""


@dataclass(frozen=True)
class Bench:
    """One model, its program, its first parameters and the rows that it learns from."""

    program: Program
    state: Mapping[str, np.ndarray]
    x: np.ndarray
    y: np.ndarray

    def answer(self, another_class: bool, question: Question) -> Gradient:
        order = slice(None, None, -1 if another_class else 1)
        batch: Arrays = {"x": question.x[order].copy(), "y": question.y[order].copy()}
        with torch.backends.mkldnn.flags(enabled=not another_class):
            found = compute_step(self.program, question.state, batch, bytes(32), GradientStep(rows=ROWS))
        return {entry.name: found[entry.name] for entry in self.program.document.trainable}

    def loss(self, state: Mapping[str, np.ndarray], question: Question) -> float:
        return evaluate(self.program, state, {"x": question.x, "y": question.y}).loss

    def trials(self) -> Iterator[Trial]:
        generator = np.random.default_rng(11)
        state = before = self.state
        for _ in range(TASKS):
            order = generator.permutation(len(self.x))
            draws = [order[at * ROWS : (at + 1) * ROWS] for at in range(OTHER_DRAWS + 2)]
            own, *others, stray = (Question(state, before, self.x[rows], self.y[rows]) for rows in draws)
            yield Trial(own, tuple(others), stray)
            gradient = self.answer(False, own)
            before, state = (
                state,
                {**state, **{name: state[name] - np.float32(RATE) * gradient[name] for name in gradient}},
            )


def digits(module: nn.Module) -> Bench:
    rows = load_table()
    x = (rows[:, :-1].reshape(-1, *SHAPE) / 16.0).astype(np.float32)
    published = publish_module(module, compute_classification_loss, (torch.randn(4, *SHAPE), torch.arange(4)))
    return Bench(Program(parse_document(published.document)), published.parameters, x, rows[:, -1].astype(np.int64))


def text(module: nn.Module) -> Bench:
    """Made-up texts: each word leads to one of a few, by chance."""
    generator = np.random.default_rng(5)
    follows = generator.dirichlet(np.full(WORDS, 0.1), WORDS).cumsum(axis=1)
    words = [generator.integers(0, WORDS, TEXTS)]
    for _ in range(LENGTH):
        words.append((generator.random((TEXTS, 1)) > follows[words[-1]]).sum(axis=1).clip(max=WORDS - 1))
    texts = np.stack(words, axis=1).astype(np.int64)
    example = torch.from_numpy(texts[:4, :-1].copy()), torch.from_numpy(texts[:4, 1:].copy())
    published = publish_module(module, next_token, example)
    return Bench(
        Program(parse_document(published.document)), published.parameters, texts[:, :-1].copy(), texts[:, 1:].copy()
    )


MODELS: Mapping[str, Callable[[], Bench]] = {
    "mlp, digits": lambda: digits(mlp.build({"hidden": [64, 64]}, SHAPE, CLASSES)),
    "cnn, digits": lambda: digits(cnn.build({"channels": [8, 16]}, SHAPE, CLASSES)),
    "gpt, made-up text": lambda: text(gpt.build({"depth": 1, "width": 32, "heads": 2}, (LENGTH,), WORDS)),
}


def tables() -> Iterator[tuple[str, Passed]]:
    torch.set_num_threads(1)
    for name, build in islice(MODELS.items(), sized(None, 1)):
        torch.manual_seed(3)
        bench = build()
        yield name, scores(bench.trials(), partial(bench.answer, False), partial(bench.answer, True), bench.loss)


def measure() -> Iterator[Figure]:
    found = [line for _, passed in tables() for line in lines(passed)]
    honest = [line for line in found if line.name == HONEST]
    blind = [line for line in found if line.name in SEEN]
    yield Figure("loss_change.score_false_rejects", 1.0 - _mean(honest, "passed"), "of scores")
    yield Figure("loss_change.score_false_accepts", _mean(blind, "passed"), "of scores", note=", ".join(SEEN))
    yield Figure("loss_change.false_convictions", _mean(honest, "convicted"), "of sequences", target="<= 0.01")
    yield Figure("loss_change.missed", 1.0 - _mean(blind, "convicted"), "of sequences", target="<= 0.05")
    yield Figure(
        "loss_change.audits_until_convicted", max(line.audits or AUDITS for line in blind), "audits, the slowest"
    )


def _mean(found: list[ScoreRow], field: str) -> float:
    return float(np.mean([getattr(line, field) for line in found]))


def page() -> str:
    parts = [HEAD]
    for model, passed in tables():
        trusted = passed[TRUSTED]
        found = list(lines(passed))
        counts = f"Each answer: {found[0].scores} scores, {found[0].sequences} sequences."
        parts.append(
            f"\n## {model}\n\nTrusted runs: {np.mean(trusted):.0%} of {len(trusted)} scores passed. {counts}\n\n"
        )
        for line in found:
            audits = "" if line.audits is None else f" after {line.audits:g} audits"
            parts.append(f"- {line.name}: {line.passed:.0%} passed, {line.convicted:.0%} convicted{audits}\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
