"""A small corner of docs/results/loss_change.md: gradients of the task's rows are cleared, others convicted."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from benchmarks.simulations.lies import Question
from benchmarks.simulations.scores import AUDITS, HONEST, LIES, TRUSTED, Trial, lines, scores
from gradmarket.market.features.loss_change import BLIND
from gradmarket.market.wire.audit_messages import OTHER_DRAWS
from tests.lanes import FULL
from tests.simulation.test_lies import CLASSES, HIDDEN, WIDTH, Matrix, drawn, gradient, one, other
from tests.simulation.test_lies import ROWS as DIVISOR

ROWS, TASKS = 16, 110
BLIND_LIES = ("noise", "zero", "sign flipped", "another task's rows")


def trials() -> Iterator[Trial]:
    generator = np.random.default_rng(4)
    centres = generator.standard_normal((CLASSES, WIDTH))
    state = before = {"w1": drawn(generator, WIDTH, HIDDEN), "w2": drawn(generator, HIDDEN, CLASSES)}
    for _ in range(TASKS):
        draws = []
        for _ in range(OTHER_DRAWS + 2):
            y = generator.integers(0, CLASSES, ROWS)
            draws.append(Question(state, before, (centres[y] + drawn(generator, ROWS, WIDTH)).astype(np.float32), y))
        yield Trial(draws[0], tuple(draws[1:-1]), draws[-1])
        step = gradient(draws[0], turned=False)
        before, state = state, {name: state[name] - np.float32(0.2) * step[name] for name in state}


def loss(state: Mapping[str, Matrix], question: Question) -> float:
    logits = (np.tanh(question.x @ state["w1"]) @ state["w2"]).astype(np.float64)
    top = logits.max(1, keepdims=True)
    chosen = logits[np.arange(len(question.y)), question.y]
    return float(np.mean(np.log(np.exp(logits - top).sum(1)) + top[:, 0] - chosen))


def test_the_loss_here_has_the_gradient_there() -> None:
    """But for its length, which no score depends on: that gradient is divided by another number of rows."""
    own = next(trials()).own
    found = one(own)["w2"]
    length = float(np.linalg.norm(found))
    moved = {**own.state, "w2": own.state["w2"] - np.float32(1e-3 / length) * found}
    fell = loss(own.state, own) - loss(moved, own)
    assert fell == pytest.approx(1e-3 * length * DIVISOR / ROWS, rel=0.02)


@FULL
def test_lies_blind_to_the_rows_are_convicted_and_honest_answers_are_not() -> None:
    passed = scores(trials(), one, other, loss)
    assert set(passed) == {TRUSTED, HONEST, *LIES}
    assert np.mean(np.equal(passed[TRUSTED], passed[HONEST])) > 0.98, "two machines differ in bits and not in this"
    found = {line.name: line for line in lines(passed)}
    assert found[HONEST].convicted == 0.0
    assert found[HONEST].passed > 0.8
    assert abs(found["another task's rows"].passed - BLIND) < 0.15
    for name in BLIND_LIES:
        assert found[name].convicted == 1.0, name
        assert found[name].audits is not None
        assert found[name].audits < AUDITS / 2, name


@FULL
def test_small_lies_are_not_convicted_by_scores() -> None:
    found = {line.name: line for line in lines(scores(trials(), one, other, loss))}
    for name in ("scaled by 1 %", "one row dropped", "1 % backdoor", "stale parameters"):
        assert found[name].convicted == 0.0, name
