"""A small part of docs/results/tolerance.md: two honest ways to compute one gradient, and lies."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.simulations.lies import LIES, Gradient, Question, table
from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.codecs import load_codec

ROWS, WIDTH, HIDDEN, CLASSES = 128, 12, 16, 4
Matrix = NDArray[np.float32]


def gradient(question: Question, turned: bool) -> Gradient:
    """Of softmax regression on tanh features in numpy float32; `turned` adds the rows up in the opposite order."""
    order = slice(None, None, -1 if turned else 1)
    x, y, state = question.x[order], question.y[order], question.state
    hidden = np.tanh(x @ state["w1"])
    logits = hidden @ state["w2"]
    chance = np.exp(logits - logits.max(1, keepdims=True))
    chance /= chance.sum(1, keepdims=True)
    error = (chance - np.eye(CLASSES, dtype=np.float32)[y]) / np.float32(ROWS)
    back = (error @ state["w2"].T) * (1 - hidden**2)
    return {"w1": x.T @ back, "w2": hidden.T @ error}


def questions(count: int) -> Iterator[Question]:
    generator = np.random.default_rng(2)
    centres = generator.standard_normal((CLASSES, WIDTH))
    state = before = {"w1": drawn(generator, WIDTH, HIDDEN), "w2": drawn(generator, HIDDEN, CLASSES)}
    for _ in range(count):
        y = generator.integers(0, CLASSES, ROWS)
        question = Question(state, before, (centres[y] + drawn(generator, ROWS, WIDTH)).astype(np.float32), y)
        yield question
        step = gradient(question, turned=False)
        before, state = state, {name: state[name] - np.float32(0.5) * step[name] for name in state}


def drawn(generator: np.random.Generator, *shape: int) -> Matrix:
    return generator.standard_normal(shape).astype(np.float32)


def one(question: Question) -> Gradient:
    return gradient(question, turned=False)


def other(question: Question) -> Gradient:
    return gradient(question, turned=True)


def test_no_lie_is_believed_and_no_honest_pair_is_parted() -> None:
    found = table(questions(62), (one, other), load_codec("fp32"), draws=4)
    assert {line.name for line in found.lines} == {"honest", *LIES}
    assert [line.mistakes for line in found.lines] == [0] * len(found.lines)
    assert found.largest < 1e-6 < found.threshold < 1e-4
    assert all(line.nearest > 10 for line in found.lines if line.name != "honest")


def test_an_honest_pair_too_far_apart_for_any_threshold_is_refused() -> None:
    def rough(question: Question) -> Gradient:
        return {name: tensor * np.float32(1.002) for name, tensor in one(question).items()}

    with pytest.raises(JobRefused, match="over 5e-03"):
        table(questions(60), (one, rough), load_codec("fp32"), draws=1)


def test_each_lie_differs_from_the_truth() -> None:
    _, question = questions(2)
    truth = one(question)
    for lie in LIES.values():
        false = lie(question, one)
        assert any(not np.array_equal(false[name], truth[name]) for name in truth)
