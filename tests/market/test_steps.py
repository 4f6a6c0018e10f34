"""One contract for every kind of step, and each one's results."""

import math
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.gradient.norm import clip_gradient
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.sampling import draw_shuffled_rows
from gradmarket.market.step import GradientStep, LocalStep, Step, TaskStep, WindowStep, cut_windows
from gradmarket.runner import steps, window_state
from gradmarket.runner.architectures import cnn
from gradmarket.runner.steps import compute_step
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc import plugins
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.figures import Bound, Published
from graphdoc.passes import derive_part_seed
from tests.lanes import leave_to_full

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
Arrays = dict[str, np.ndarray]
SEED = bytes(range(32))
ADAMW = {"name": "adamw", "lr": 0.01, "clip": 0.5, "weight_decay": 0.1}
ASKED: dict[str, dict[str, Any]] = {
    "gradient": {"rows": 12, "microbatch": 5},
    "local": {"kind": "local", "steps": 3, "rows": 4, "microbatch": 3, "optimizer": ADAMW},
}


def parse_step(kind: str, **changes: Any) -> GradientStep | LocalStep:
    step: GradientStep | LocalStep = TypeAdapter(Step).validate_python(ASKED[kind] | changes)
    return step


@pytest.fixture(scope="module")
def model() -> Published:
    """With BatchNorm, so that buffers move too, and dropout, so that seeds matter."""
    torch.manual_seed(1)
    module = cnn.build({"channels": [4], "dropout": 0.25}, (1, 4, 4), 3)
    return publish_module(module, compute_classification_loss, (torch.randn(4, 1, 4, 4), torch.arange(4) % 3))


@pytest.fixture(scope="module")
def program(model: Published) -> Program:
    return Program(parse_document(model.document))


@pytest.fixture(scope="module")
def batch() -> Arrays:
    generator = np.random.default_rng(7)
    return {"x": generator.standard_normal((12, 1, 4, 4)).astype(np.float32), "y": generator.integers(0, 3, 12)}


def bits(answer: Arrays) -> list[tuple[str, bytes]]:
    return [(name, array.tobytes()) for name, array in answer.items()]


def test_every_file_is_a_kind_and_every_kind_a_file() -> None:
    assert set(plugins.list_plugin_names(steps.__name__)) == set(ASKED)
    with pytest.raises(Refused, match="gradient, local"):
        steps.load_step_rule("sgd")


@pytest.mark.parametrize("kind", plugins.list_plugin_names(steps.__name__))
class TestStep:
    def test_the_answer_has_the_layout_in_float32(
        self, kind: str, program: Program, model: Published, batch: Arrays
    ) -> None:
        answer = compute_step(program, model.parameters, batch, SEED, parse_step(kind))
        entries = build_layout(program.document).entries
        assert [(name, array.shape) for name, array in answer.items()] == [(one.name, one.shape) for one in entries]
        assert {array.dtype.name for array in answer.values()} == {"float32"}
        assert any(answer[entry.name].any() for entry in entries if entry.kind == "gradient")

    def test_a_step_is_a_pure_function(self, kind: str, program: Program, model: Published, batch: Arrays) -> None:
        state = {name: array.copy() for name, array in model.parameters.items()}
        first = compute_step(program, state, batch, SEED, parse_step(kind))
        torch.manual_seed(99)
        fortran = {name: np.array(array, order="F") for name, array in state.items()}
        assert bits(
            compute_step(Program(parse_document(model.document)), fortran, batch, SEED, parse_step(kind))
        ) == bits(first)
        assert all(np.array_equal(state[name], array) for name, array in model.parameters.items())

    @pytest.mark.parametrize("cheat", ["another seed", "another label", "rows in another order", "stale weights"])
    def test_another_question_has_other_bits(
        self, kind: str, program: Program, model: Published, batch: Arrays, cheat: str
    ) -> None:
        honest = compute_step(program, model.parameters, batch, SEED, parse_step(kind))
        state, data, seed = dict(model.parameters), {name: array.copy() for name, array in batch.items()}, SEED
        if cheat == "another seed":
            seed = bytes(32)
        elif cheat == "another label":
            data["y"][-1] = (data["y"][-1] + 1) % 3
        elif cheat == "stale weights":
            state["0.weight"] = state["0.weight"] * np.float32(1.01)
        else:
            data = {name: array[::-1].copy() for name, array in data.items()}
        assert bits(compute_step(program, state, data, seed, parse_step(kind))) != bits(honest)

    def test_another_number_of_rows_is_refused(
        self, kind: str, program: Program, model: Published, batch: Arrays
    ) -> None:
        for less in ({name: array[:-1] for name, array in batch.items()}, {"x": batch["x"]}):
            with pytest.raises(Refused):
                compute_step(program, model.parameters, less, SEED, parse_step(kind))

    def test_a_step_s_passes_are_counted(self, kind: str) -> None:
        assert parse_step(kind).passes == {"gradient": 3, "local": 6}[kind]
        assert parse_step(kind, microbatch=None).passes == parse_step(kind).moves
        assert parse_step(kind, microbatch=1000).pass_rows == parse_step(kind).rows


LOCAL = {
    "plain": {},
    "re-warm": {"rewarm": 2},
    "longer re-warm than steps": {"rewarm": 9},
    "cosine": {"optimizer": ADAMW | {"schedule": {"name": "cosine", "warmup": 5}}},
    "both": {"rewarm": 2, "optimizer": ADAMW | {"schedule": {"name": "linear"}}},
    "muon": {"optimizer": {"name": "muon", "lr": 0.01}},
}
ROUNDS = 3


def inner_rates(step: LocalStep, number: int) -> list[float]:
    """By docs/training.md: the schedule over all inner steps, times the re-warm's share of each."""
    chosen, total = step.optimizer, ROUNDS * step.steps
    rates = []
    for inner in range(step.steps):
        share = min(1.0, (inner + 1) / step.rewarm) if step.rewarm else 1.0
        rates.append(
            share
            * compute_learning_rate(chosen.schedule.name, chosen.lr, number * 3 + inner, total, chosen.schedule.warmup)
        )
    return rates


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("name", LOCAL)
def test_local_steps_are_gradients_and_inner_steps_one_after_another(
    program: Program, model: Published, batch: Arrays, name: str, number: int
) -> None:
    step = parse_step("local", **LOCAL[name])
    assert isinstance(step, LocalStep)
    rule, inner, chosen = load_optimizer(step.optimizer.name), GradientStep(rows=4, microbatch=3), step.optimizer
    settings = rule.Settings(**chosen.settings)
    names = [entry.name for entry in program.document.trainable]
    state, losses = dict(model.parameters), []
    memory = rule.start({name: state[name] for name in names}, settings)
    for place, lr in enumerate(inner_rates(step, number)):
        part = {name: array[4 * place : 4 * place + 4] for name, array in batch.items()}
        answer = compute_step(program, state, part, derive_part_seed(b"inner", place, SEED), inner)
        gradient = {name: answer[name] for name in names}
        gradient = gradient if chosen.clip is None else clip_gradient(gradient, chosen.clip)
        moved, memory = rule.step({name: state[name] for name in names}, gradient, memory, lr, settings)
        state |= moved | {name: answer[name] for name in program.document.updates}
        losses.append(float(answer["loss"]))
    found = compute_step(program, model.parameters, batch, SEED, step.in_round(number, ROUNDS))
    for name in names:
        np.testing.assert_array_equal(found[name], model.parameters[name] - state[name])
    for name in program.document.updates:
        np.testing.assert_array_equal(found[name], state[name])
    assert found["loss"] == np.float32(np.mean(losses))


def test_local_steps_are_torchs_own_loop(program: Program, model: Published, batch: Arrays) -> None:
    """With torch's AdamW, its clipping and its schedules, from the gradients that the document gives."""
    step = parse_step("local", rewarm=2, optimizer=ADAMW | {"schedule": {"name": "linear"}})
    assert isinstance(step, LocalStep)
    inner, number = GradientStep(rows=4, microbatch=3), 1
    names = [entry.name for entry in program.document.trainable]
    state = dict(model.parameters)
    trained = {name: torch.nn.Parameter(torch.tensor(state[name])) for name in names}
    rule = torch.optim.AdamW(trained.values(), lr=0.01, weight_decay=0.1)
    decay = torch.optim.lr_scheduler.LambdaLR(rule, lambda place: 1 - (number * 3 + place) / (ROUNDS * 3))
    for place in range(3):
        part = {name: array[4 * place : 4 * place + 4] for name, array in batch.items()}
        answer = compute_step(program, state, part, derive_part_seed(b"inner", place, SEED), inner)
        for name in names:
            trained[name].grad = torch.from_numpy(answer[name].copy())
        torch.nn.utils.clip_grad_norm_(trained.values(), 0.5)
        rule.param_groups[0]["lr"] *= min(1.0, (place + 1) / 2)
        rule.step()
        decay.step()
        state |= {name: one.detach().numpy().copy() for name, one in trained.items()}
        state |= {name: answer[name] for name in program.document.updates}
    found = compute_step(program, model.parameters, batch, SEED, step.in_round(number, ROUNDS))
    for name in names:
        np.testing.assert_allclose(found[name], model.parameters[name] - state[name], atol=2e-6)


def test_a_worker_that_leaves_out_the_re_warm_or_the_schedule_has_other_bits(
    program: Program, model: Published, batch: Arrays
) -> None:
    honest = parse_step("local", rewarm=2, optimizer=ADAMW | {"schedule": {"name": "linear"}}).in_round(1, ROUNDS)
    answers = {tuple(bits(compute_step(program, model.parameters, batch, SEED, honest)))}
    cheats = [
        honest.model_copy(update={"rewarm": 0}),
        parse_step("local", rewarm=2).in_round(1, ROUNDS),
        parse_step("local", rewarm=2, optimizer=ADAMW | {"schedule": {"name": "linear"}}).in_round(2, ROUNDS),
    ]
    answers |= {tuple(bits(compute_step(program, model.parameters, batch, SEED, cheat))) for cheat in cheats}
    assert len(answers) == 1 + len(cheats)


def test_a_step_without_the_new_fields_is_published_as_it_was() -> None:
    """The digest of an older publication is over these very bytes."""
    step = parse_step("local")
    assert step.in_round(2, ROUNDS) is step
    assert set(step.model_dump(mode="json")) == {"kind", "rows", "microbatch", "steps", "optimizer"}
    assert step.model_dump(mode="json")["optimizer"] == ADAMW


def test_steps_survive_the_way_to_a_child() -> None:
    steps = [parse_step("gradient"), parse_step("local", rewarm=2)]
    steps.append(parse_step("local", optimizer=ADAMW | {"schedule": {"name": "cosine"}}).in_round(2, ROUNDS))
    steps.append(WindowStep.of(parse_step("local", window=1), range(1, 2)))
    reader: TypeAdapter[TaskStep] = TypeAdapter(TaskStep)
    assert [reader.validate_python(step.model_dump(mode="json")) for step in steps] == steps


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("window", leave_to_full([1, 2, 3], 2))
def test_windows_one_after_another_are_the_whole_task(
    program: Program, model: Published, batch: Arrays, name: str, window: int
) -> None:
    """Each starts from the written and read state of the one before, in a program that has seen no other."""
    step, own = parse_step("local", **LOCAL[name]).in_round(1, ROUNDS), build_layout(program.document)
    assert isinstance(step, LocalStep)
    first = state = window_state.build_start_state(own, model.parameters, step)
    for part in cut_windows(step.steps, window):
        state = window_state.unpack_state(window_state.pack_state(state), own, step, part.start)
        rows = {key: array[4 * part.start : 4 * part.stop] for key, array in batch.items()}
        fresh = Program(parse_document(model.document))
        after = compute_step(fresh, {**model.parameters, **state}, rows, SEED, WindowStep.of(step, part))
        losses = np.concatenate([state[window_state.LOSSES], after[window_state.LOSSES]])
        state = {**after, window_state.LOSSES: losses}
    whole = compute_step(program, model.parameters, batch, SEED, step)
    assert bits(window_state.build_task_answer(own, first, state)) == bits(whole)


def test_orthogonal_steps_are_in_the_task_s_cost(program: Program) -> None:
    """Newton-Schulz grows with the cube of a matrix's side, and is computed at each inner step."""
    bound, names = Bound(4, 10**6, 10**6, ""), {entry.name: entry.shape for entry in program.document.trainable}
    plain, muon = (
        compute_task_cost(program.document, bound, parse_step("local", optimizer={"name": name, "lr": 0.1}))
        for name in ("adamw", "muon")
    )
    matrices = [(shape[0], math.prod(shape[1:])) for shape in names.values() if len(shape) > 1]
    every = sum(5 * (4 * min(one) ** 2 * max(one) + 2 * min(one) ** 3) for one in matrices)
    assert muon.operations - plain.operations == 3 * every
    assert muon.memory >= plain.memory


def test_one_inner_step_of_plain_sgd_is_the_gradient(program: Program, model: Published, batch: Arrays) -> None:
    """But for the rounding of p - (p - g), and for dropout's seed, which is of the inner step."""
    evaluation = Program(parse_document(model.evaluation))
    one = parse_step("local", steps=1, rows=12, microbatch=5, optimizer={"name": "sgd", "lr": 1.0})
    local = compute_step(evaluation, model.parameters, batch, SEED, one)
    plain = compute_step(evaluation, model.parameters, batch, SEED, parse_step("gradient"))
    assert local["loss"] == plain["loss"]
    for name in local:
        np.testing.assert_allclose(local[name], plain[name], atol=1e-6)


def test_an_inner_rate_that_explodes_is_answered_not_raised(program: Program, model: Published, batch: Arrays) -> None:
    wild = parse_step(
        "local", optimizer={"name": "sgd", "lr": 1e6, "momentum": 0.99}, steps=12, rows=1, microbatch=None
    )
    answer = compute_step(program, model.parameters, batch, SEED, wild)
    assert not all(np.isfinite(array).all() and np.abs(array).max() < 1e4 for array in answer.values())


def test_the_rows_of_local_steps_follow_each_other() -> None:
    every = [draw_shuffled_rows(b"seed", 4, task, total=10, count=4, moves=3) for task in range(2)]
    assert all(len(set(move)) == 4 for task in every for move in (task[:4], task[4:8], task[8:]))
    plain = [draw_shuffled_rows(b"seed", 4, number, total=10, count=4) for number in range(6)]
    assert [*chain(*every)] == [*chain(*plain)]
    with pytest.raises(Refused, match="11 rows of a partition that has 10"):
        draw_shuffled_rows(b"seed", 0, 0, total=10, count=11, moves=2)


REFUSED = [
    {"kind": "local", "rows": 4},
    {"kind": "local", "rows": 4, "steps": 0, "optimizer": {"lr": 0.1}},
    {"kind": "local", "rows": 4, "steps": 2, "optimizer": {"lr": 0.0}},
    {"kind": "local", "rows": 4, "steps": 2, "optimizer": {"lr": 0.1}, "rewarm": -1},
    {"kind": "local", "rows": 4, "steps": 2, "optimizer": {"lr": 0.1}, "first": 0, "total": 2},
    {"kind": "local", "rows": 4, "steps": 2, "optimizer": {"lr": 0.1, "schedule": {"name": "steps"}}},
    {"kind": "gradient", "rows": 4, "rewarm": 2},
    {"kind": "gradient", "rows": 4, "steps": 2},
    {"kind": "os", "rows": 4},
    {"rows": 0},
    [],
]


@pytest.mark.parametrize("step", REFUSED, ids=str)
def test_other_steps_are_refused(step: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Step).validate_python(step)


def test_a_proximal_step_is_that_of_fedprox(program: Program, model: Published, batch: Arrays) -> None:
    """The second of two plain steps by g + mu (p - p_0), where both g come from steps without the term."""
    mu, lr = 0.5, 0.1
    inner = {"name": "sgd", "lr": lr}

    def answer(steps: int, **changes: Any) -> Arrays:
        data = {name: rows[: 4 * steps] for name, rows in batch.items()}
        return compute_step(
            program, model.parameters, data, SEED, parse_step("local", steps=steps, optimizer=inner, **changes)
        )

    once, twice, proximal = answer(1), answer(2), answer(2, proximal=mu)
    assert bits(answer(1, proximal=mu)) == bits(once), "the first step starts from the round's parameters"
    for entry in build_layout(program.document).of("gradient"):
        first = once[entry.name]  # p_0 - p_1
        np.testing.assert_allclose(proximal[entry.name], twice[entry.name] - lr * mu * first, rtol=1e-5, atol=1e-7)


def test_a_proximal_step_has_no_windows() -> None:
    with pytest.raises(ValidationError, match="leave out window"):
        parse_step("local", steps=12, window=4, proximal=0.1)
