"""The step: the same bits for the same question, whatever is asked around it, and others for another question."""

import hashlib

import numpy as np
import pytest
import torch

from gradmarket.market.errors import DocumentRefused, Refused
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.step import GradientStep
from gradmarket.runner.architectures import cnn, mlp
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.figures import Published
from graphdoc.passes import evaluate

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
Arrays = dict[str, np.ndarray]
SEED = bytes(range(32))


@pytest.fixture(scope="module")
def convolutional() -> Published:
    torch.manual_seed(1)
    module = cnn.build({"channels": [4, 8]}, (1, 8, 8), 10)
    return publish_module(module, compute_classification_loss, (torch.randn(4, 1, 8, 8), torch.arange(4)))


@pytest.fixture(scope="module")
def dropping() -> Published:
    torch.manual_seed(1)
    module = mlp.build({"hidden": [16], "dropout": 0.5}, (8, 8), 10)
    return publish_module(module, compute_classification_loss, (torch.randn(4, 8, 8), torch.arange(4)))


def batch(rows: int, *shape: int) -> Arrays:
    generator = np.random.default_rng(7)
    x = generator.standard_normal((rows, *shape)).astype(np.float32)
    return {"x": x, "y": generator.integers(0, 10, rows)}


def bits(answer: Arrays) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in answer.values())).hexdigest()


def test_the_answer_has_the_layout(convolutional: Published) -> None:
    program = Program(parse_document(convolutional.document))
    answer = compute_step(program, convolutional.parameters, batch(16, 1, 8, 8), SEED, GradientStep(rows=16))
    entries = build_layout(program.document).entries
    assert [(name, array.shape) for name, array in answer.items()] == [(entry.name, entry.shape) for entry in entries]
    assert {array.dtype.name for array in answer.values()} == {"float32"}
    assert [entry.kind for entry in entries] == ["loss"] + ["gradient"] * 8 + ["buffer"] * 4
    assert not any("num_batches_tracked" in name for name in answer)
    assert np.isfinite(answer["loss"])


def test_the_same_question_has_the_same_bits_and_changes_nothing(convolutional: Published) -> None:
    program = Program(parse_document(convolutional.document))
    data, state = batch(16, 1, 8, 8), {name: array.copy() for name, array in convolutional.parameters.items()}
    step = GradientStep(rows=16, microbatch=5)
    first = compute_step(program, state, data, SEED, step)
    torch.manual_seed(99)
    torch.randn(1000)
    fortran = {name: np.array(array, order="F") for name, array in state.items()}
    other = compute_step(Program(parse_document(convolutional.document)), fortran, data, SEED, step)
    assert bits(first) == bits(other)
    assert all(np.array_equal(state[name], array) for name, array in convolutional.parameters.items())


def test_microbatches_are_one_batch_but_for_rounding(dropping: Published) -> None:
    program = Program(parse_document(dropping.evaluation))
    data = batch(20, 8, 8)
    whole = compute_step(program, dropping.parameters, data, SEED, GradientStep(rows=20))
    for microbatch in (1, 7, 10, 20, 50):
        parts = compute_step(program, dropping.parameters, data, SEED, GradientStep(rows=20, microbatch=microbatch))
        for name, array in whole.items():
            np.testing.assert_allclose(parts[name], array, rtol=1e-4, atol=1e-6)
    assert bits(compute_step(program, dropping.parameters, data, SEED, GradientStep(rows=20, microbatch=20))) == bits(
        whole
    )


def test_microbatches_add_up_in_order_and_buffers_go_from_one_to_the_next(convolutional: Published) -> None:
    program = Program(parse_document(convolutional.document))
    data, state = batch(12, 1, 8, 8), dict(convolutional.parameters)
    together = compute_step(program, state, data, SEED, GradientStep(rows=12, microbatch=8))
    first = compute_step(program, state, {name: array[:8] for name, array in data.items()}, SEED, GradientStep(rows=8))
    moved = state | {name: first[name] for name in program.document.updates}
    second = compute_step(program, moved, {name: array[8:] for name, array in data.items()}, SEED, GradientStep(rows=4))
    for entry in build_layout(program.document).entries:
        if entry.kind == "buffer":
            expected = second[entry.name]
        else:
            shares = np.float32(8 / 12), np.float32(4 / 12)
            expected = first[entry.name] * shares[0] + second[entry.name] * shares[1]
        assert np.array_equal(together[entry.name], expected), entry.name


def test_the_seed_decides_the_dropout_and_nothing_else_does(dropping: Published, convolutional: Published) -> None:
    program, step = Program(parse_document(dropping.document)), GradientStep(rows=16)
    one = compute_step(program, dropping.parameters, batch(16, 8, 8), SEED, step)
    again = compute_step(program, dropping.parameters, batch(16, 8, 8), SEED, step)
    other = compute_step(program, dropping.parameters, batch(16, 8, 8), bytes(32), step)
    assert bits(one) == bits(again) != bits(other)
    dry = Program(parse_document(convolutional.document))
    seeds = (SEED, bytes(32))
    answers = {bits(compute_step(dry, convolutional.parameters, batch(16, 1, 8, 8), seed, step)) for seed in seeds}
    assert len(answers) == 1


CHEATS = ["a row less", "a row twice", "another label", "stale weights", "rows in another order"]


@pytest.mark.parametrize("cheat", CHEATS)
def test_another_question_has_other_bits(dropping: Published, cheat: str) -> None:
    program, data = Program(parse_document(dropping.document)), batch(16, 8, 8)
    state = {name: array.copy() for name, array in dropping.parameters.items()}
    honest = compute_step(program, state, data, SEED, GradientStep(rows=16))
    rows = 16
    if cheat == "a row less":
        rows, data = 15, {name: array[:15] for name, array in data.items()}
    elif cheat == "a row twice":
        data["x"][1], data["y"][1] = data["x"][0], data["y"][0]
    elif cheat == "another label":
        data["y"][0] = (data["y"][0] + 1) % 10
    elif cheat == "stale weights":
        state["1.bias"] += np.float32(1e-3)
    else:
        data = {name: array[::-1].copy() for name, array in data.items()}
    assert bits(compute_step(program, state, data, SEED, GradientStep(rows=rows))) != bits(honest)


def test_a_step_of_other_shapes_or_types_is_refused(dropping: Published) -> None:
    program, data, state = Program(parse_document(dropping.document)), batch(16, 8, 8), dropping.parameters
    step = GradientStep(rows=16)
    wrong: list[tuple[Arrays, Arrays, GradientStep]] = [
        (state, data, GradientStep(rows=15)),
        (state, {"x": data["x"]}, step),
        (state, data | {"z": data["y"]}, step),
        (state, data | {"y": data["y"][:8]}, step),
        (state, data | {"x": data["x"].astype(np.float64)}, step),
        (state, data | {"x": data["x"].astype(">f4")}, step),
        (state, data | {"x": data["x"][:, :4]}, step),
        (state, {"x": np.float32(1), "y": np.float32(1)}, step),  # type: ignore[dict-item]
        ({name: array for name, array in state.items() if name != "1.bias"}, data, step),
        (state | {"1.bias": state["1.bias"][:3]}, data, step),
    ]
    for parameters, rows, asked in wrong:
        with pytest.raises(Refused):
            compute_step(program, parameters, rows, SEED, asked)
    assert compute_step(program, state | {"another": state["1.bias"]}, data, SEED, step)


def test_a_label_out_of_range_is_refused(dropping: Published) -> None:
    data = batch(16, 8, 8)
    data["y"][3] = 10
    with pytest.raises(DocumentRefused, match="cross_entropy"):
        compute_step(Program(parse_document(dropping.document)), dropping.parameters, data, SEED, GradientStep(rows=16))


def test_evaluation_is_by_running_statistics_over_all_rows(convolutional: Published) -> None:
    program = Program(parse_document(convolutional.evaluation))
    data = batch(1500, 1, 8, 8)
    metrics = evaluate(program, convolutional.parameters, data)
    parts = [
        evaluate(program, convolutional.parameters, {name: array[part] for name, array in data.items()})
        for part in (slice(0, 1024), slice(1024, 1500))
    ]
    assert metrics.rows == 1500
    right = sum(part.values["accuracy"] * part.rows for part in parts)
    assert metrics.values["accuracy"] * 1500 == pytest.approx(right)
    assert metrics.loss == pytest.approx(sum(part.loss * part.rows for part in parts) / 1500)
    assert 0.0 <= metrics.values["accuracy"] <= 1.0


def test_accuracy_counts_the_right_answers(dropping: Published) -> None:
    program, data = Program(parse_document(dropping.evaluation)), batch(64, 8, 8)
    state = {name: torch.tensor(array) for name, array in dropping.parameters.items()}
    hidden = torch.relu(torch.tensor(data["x"]).flatten(1) @ state["1.weight"].T + state["1.bias"])
    right = (hidden @ state["4.weight"].T + state["4.bias"]).argmax(1) == torch.tensor(data["y"])
    assert evaluate(program, dropping.parameters, data).values["accuracy"] == right.sum().item() / 64
