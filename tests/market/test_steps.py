"""One contract for every kind of step, and what each of them computes."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from gradmarket.market import plugins
from gradmarket.market.errors import Refused
from gradmarket.market.gradient.clipping import clip
from gradmarket.market.gradient.optimizers import optimizer
from gradmarket.market.model import steps
from gradmarket.market.model.architectures import cnn
from gradmarket.market.model.compute import compute
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.document.publish import classification, publish
from gradmarket.market.model.document.schema import load
from gradmarket.market.model.figures import Published
from gradmarket.market.model.layout import layout
from gradmarket.market.model.passes import numbered
from gradmarket.market.model.sampling import rows
from gradmarket.market.step import GradientStep, LocalStep, Step

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
Arrays = dict[str, np.ndarray]
SEED = bytes(range(32))
ADAMW = {"name": "adamw", "lr": 0.01, "clip": 0.5, "weight_decay": 0.1}
ASKED: dict[str, dict[str, Any]] = {
    "gradient": {"rows": 12, "microbatch": 5},
    "local": {"kind": "local", "steps": 3, "rows": 4, "microbatch": 3, "optimizer": ADAMW},
}


def asked(kind: str, **changes: Any) -> GradientStep | LocalStep:
    step: GradientStep | LocalStep = TypeAdapter(Step).validate_python(ASKED[kind] | changes)
    return step


@pytest.fixture(scope="module")
def model() -> Published:
    """With BatchNorm, so that buffers move too, and dropout, so that seeds matter."""
    torch.manual_seed(1)
    module = cnn.build({"channels": [4], "dropout": 0.25}, (1, 4, 4), 3)
    return publish(module, classification, (torch.randn(4, 1, 4, 4), torch.arange(4) % 3))


@pytest.fixture(scope="module")
def program(model: Published) -> Program:
    return Program(load(model.document))


@pytest.fixture(scope="module")
def batch() -> Arrays:
    generator = np.random.default_rng(7)
    return {"x": generator.standard_normal((12, 1, 4, 4)).astype(np.float32), "y": generator.integers(0, 3, 12)}


def bits(answer: Arrays) -> list[tuple[str, bytes]]:
    return [(name, array.tobytes()) for name, array in answer.items()]


def test_every_file_is_a_kind_and_every_kind_a_file() -> None:
    assert set(plugins.names(steps.__name__)) == set(ASKED)
    with pytest.raises(Refused, match="gradient, local"):
        steps.step("sgd")


@pytest.mark.parametrize("kind", plugins.names(steps.__name__))
class TestStep:
    def test_the_answer_has_the_layout_in_float32(
        self, kind: str, program: Program, model: Published, batch: Arrays
    ) -> None:
        answer = compute(program, model.parameters, batch, SEED, asked(kind))
        entries = layout(program.document).entries
        assert [(name, array.shape) for name, array in answer.items()] == [(one.name, one.shape) for one in entries]
        assert {array.dtype.name for array in answer.values()} == {"float32"}
        assert any(answer[entry.name].any() for entry in entries if entry.kind == "gradient")

    def test_it_is_a_pure_function(self, kind: str, program: Program, model: Published, batch: Arrays) -> None:
        state = {name: array.copy() for name, array in model.parameters.items()}
        first = compute(program, state, batch, SEED, asked(kind))
        torch.manual_seed(99)
        fortran = {name: np.array(array, order="F") for name, array in state.items()}
        assert bits(compute(Program(load(model.document)), fortran, batch, SEED, asked(kind))) == bits(first)
        assert all(np.array_equal(state[name], array) for name, array in model.parameters.items())

    @pytest.mark.parametrize("cheat", ["another seed", "another label", "rows in another order", "stale weights"])
    def test_another_question_has_other_bits(
        self, kind: str, program: Program, model: Published, batch: Arrays, cheat: str
    ) -> None:
        honest = compute(program, model.parameters, batch, SEED, asked(kind))
        state, data, seed = dict(model.parameters), {name: array.copy() for name, array in batch.items()}, SEED
        if cheat == "another seed":
            seed = bytes(32)
        elif cheat == "another label":
            data["y"][-1] = (data["y"][-1] + 1) % 3
        elif cheat == "stale weights":
            state["0.weight"] = state["0.weight"] * np.float32(1.01)
        else:
            data = {name: array[::-1].copy() for name, array in data.items()}
        assert bits(compute(program, state, data, seed, asked(kind))) != bits(honest)

    def test_another_number_of_rows_is_refused(
        self, kind: str, program: Program, model: Published, batch: Arrays
    ) -> None:
        for less in ({name: array[:-1] for name, array in batch.items()}, {"x": batch["x"]}):
            with pytest.raises(Refused):
                compute(program, model.parameters, less, SEED, asked(kind))

    def test_its_cost_is_that_of_its_passes(self, kind: str) -> None:
        assert asked(kind).passes == {"gradient": 3, "local": 6}[kind]
        assert asked(kind, microbatch=None).passes == asked(kind).moves
        assert asked(kind, microbatch=1000).pass_rows == asked(kind).rows


def test_local_steps_are_gradients_and_inner_steps_one_after_another(
    program: Program, model: Published, batch: Arrays
) -> None:
    step = asked("local")
    assert isinstance(step, LocalStep)
    rule, inner = optimizer("adamw"), GradientStep(rows=4, microbatch=3)
    settings = rule.Settings(weight_decay=0.1)
    names = [entry.name for entry in program.document.trainable]
    state, losses = dict(model.parameters), []
    memory = rule.start({name: state[name] for name in names}, settings)
    for number in range(3):
        part = {name: array[4 * number : 4 * number + 4] for name, array in batch.items()}
        answer = compute(program, state, part, numbered(b"inner", number, SEED), inner)
        gradient = clip({name: answer[name] for name in names}, 0.5)
        moved, memory = rule.step({name: state[name] for name in names}, gradient, memory, 0.01, settings)
        state |= moved | {name: answer[name] for name in program.document.updates}
        losses.append(float(answer["loss"]))
    found = compute(program, model.parameters, batch, SEED, step)
    for name in names:
        np.testing.assert_array_equal(found[name], model.parameters[name] - state[name])
    for name in program.document.updates:
        np.testing.assert_array_equal(found[name], state[name])
    assert found["loss"] == np.float32(np.mean(losses))


def test_one_inner_step_of_plain_sgd_is_the_gradient(program: Program, model: Published, batch: Arrays) -> None:
    """But for the rounding of p - (p - g), and for dropout's seed, which is of the inner step."""
    evaluation = Program(load(model.evaluation))
    one = asked("local", steps=1, rows=12, microbatch=5, optimizer={"name": "sgd", "lr": 1.0})
    local = compute(evaluation, model.parameters, batch, SEED, one)
    plain = compute(evaluation, model.parameters, batch, SEED, asked("gradient"))
    assert local["loss"] == plain["loss"]
    for name in local:
        np.testing.assert_allclose(local[name], plain[name], atol=1e-6)


def test_an_inner_rate_that_explodes_is_answered_not_raised(program: Program, model: Published, batch: Arrays) -> None:
    wild = asked("local", optimizer={"name": "sgd", "lr": 1e6, "momentum": 0.99}, steps=12, rows=1, microbatch=None)
    answer = compute(program, model.parameters, batch, SEED, wild)
    assert not all(np.isfinite(array).all() and np.abs(array).max() < 1e4 for array in answer.values())


def test_the_rows_of_local_steps_follow_each_other() -> None:
    every = [rows(b"seed", 4, task, total=10, count=4, moves=3) for task in range(2)]
    assert all(len(set(move)) == 4 for task in every for move in (task[:4], task[4:8], task[8:]))
    plain = [rows(b"seed", 4, number, total=10, count=4) for number in range(6)]
    assert [*chain(*every)] == [*chain(*plain)]
    with pytest.raises(Refused, match="11 rows of a partition that has 10"):
        rows(b"seed", 0, 0, total=10, count=11, moves=2)


REFUSED = [
    {"kind": "local", "rows": 4},
    {"kind": "local", "rows": 4, "steps": 0, "optimizer": {"lr": 0.1}},
    {"kind": "local", "rows": 4, "steps": 2, "optimizer": {"lr": 0.0}},
    {"kind": "gradient", "rows": 4, "steps": 2},
    {"kind": "os", "rows": 4},
    {"rows": 0},
    [],
]


@pytest.mark.parametrize("step", REFUSED, ids=str)
def test_other_steps_are_refused(step: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Step).validate_python(step)
