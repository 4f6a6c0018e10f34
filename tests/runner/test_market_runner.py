"""The work of a market's children beside documents: steps of a round, and ready architectures."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradmarket.market.errors import JobRefused, Refused, RunnerCrashed
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.norm import clip_gradient
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.manifest import Labelled
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep, Schedule
from gradmarket.runner import DocumentInfo, Runner, RunnerSettings, market_runner, steps
from gradmarket.runner.device_codecs import estimate_packing_bytes
from gradmarket.runner.step_child import StepHandler
from graphdoc.document.index_watch import IndexWatch
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.figures import Published
from graphdoc.passes import derive_part_seed
from graphdoc.runner.arena import AnswerMemory
from graphdoc.runner.serving import Configuration
from tests.lanes import leave_to_full
from tests.patience import PATIENCE_S

Arrays = dict[str, np.ndarray]
SEED = bytes(range(32))
VECTORS = Labelled(dtype="float32", shape=(64,), classes=10)
IMAGES = Labelled(dtype="float32", shape=(1, 8, 8), classes=10)
STEP = GradientStep(rows=64, microbatch=20)
STRANGE = Path(__file__).parents[1] / "graphdoc" / "strange_child.py"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(RunnerSettings(memory_bytes=2**30, seconds=60.0)) as runner:
        runner.turn("", publishes=True)
        yield runner


@pytest.fixture(scope="module")
def mlp(runner: Runner) -> Published:
    return runner.publish("mlp", {"hidden": [32], "dropout": 0.25}, VECTORS, seed=1)


@pytest.fixture(scope="module")
def digits() -> Arrays:
    """Sixty-four rows of noise with labels."""
    generator = np.random.default_rng(3)
    return {"x": generator.standard_normal((64, 64)).astype(np.float32), "y": generator.integers(0, 10, 64)}


def bits(answer: Arrays) -> list[tuple[str, bytes]]:
    return [(name, array.tobytes()) for name, array in answer.items()]


def test_a_card_s_bound_has_what_packing_takes_there(mlp: Published) -> None:
    document = parse_document(mlp.document)
    request = {"digest": document.digest, "rows": 64, "training": True, "by_row": False}
    told = {}
    for device in ("cpu", "cuda"):
        handler = StepHandler(Configuration(0, False, 0, 0, 0, device, 1, 2**40, 2**60, 2**40))
        handler.programs[document.digest] = Program(document)
        told[device] = [handler.answers["bound"](request | {"training": one})["peak_bytes"] for one in (True, False)]
    packing = [card - host for card, host in zip(told["cuda"], told["cpu"], strict=True)]
    assert packing == [estimate_packing_bytes(build_layout(document)), 0]


def test_a_gradient_step_answers_in_its_layout_with_the_bits_of_a_run(runner: Runner, digits: Arrays) -> None:
    cnn = runner.publish("cnn", {"channels": [4, 8]}, IMAGES, seed=1)
    images = digits | {"x": digits["x"].reshape(64, 1, 8, 8)}
    info = DocumentInfo.of(runner.load(cnn.document))
    assert info.layout == build_layout(parse_document(cnn.document))
    answer = runner.compute(cnn.parameters, images, SEED, STEP)
    assert [(name, array.shape) for name, array in answer.items()] == [
        (entry.name, entry.shape) for entry in info.layout.entries
    ]
    assert bits(answer) == bits(runner.run(cnn.parameters, images, SEED, 20))
    with pytest.raises(Refused, match="a step of 1 times 63 rows got 64"):
        runner.compute(cnn.parameters, images, SEED, GradientStep(rows=63))


@pytest.mark.parametrize("codec", leave_to_full(["fp32", "int8", "two_bit"], 2))
@pytest.mark.parametrize(
    "step",
    [STEP, LocalStep(kind="local", rows=16, steps=4, optimizer=InnerOptimizer(name="adamw", lr=0.01))],
    ids=["gradient", "local"],
)
def test_a_child_packs_its_answer_as_its_parent_would(
    runner: Runner, digits: Arrays, step: GradientStep | LocalStep, codec: str
) -> None:
    cnn = runner.publish("cnn", {"channels": [4, 8]}, IMAGES, seed=1)
    images = digits | {"x": digits["x"].reshape(64, 1, 8, 8)}
    layout = DocumentInfo.of(runner.load(cnn.document)).layout
    answer = runner.compute(cnn.parameters, images, SEED, step)
    packed = runner.compute_payload(cnn.parameters, images, SEED, step, codec)
    assert packed == encode_payload(layout, answer, load_codec(codec), SEED)


def test_indices_are_judged_once_the_packed_answer_has_left(
    mlp: Published, digits: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card this waits once, instead of before the packing too."""
    done = []
    monkeypatch.setattr(steps, "pack_answer", lambda *_given: done.append("packed"))
    monkeypatch.setattr(IndexWatch, "refuse_misfits", lambda _watch: done.append("judged"))
    task = Program(parse_document(mlp.document)), mlp.parameters, digits, SEED, STEP, "cpu", "fp32"
    steps.compute_payload(*task, np.zeros(1, np.uint8))
    assert done == ["packed", "judged"]


def test_an_answer_s_memory_is_filled_while_a_card_computes(
    runner: Runner, mlp: Published, digits: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child computes on the processor; its parent works meanwhile as beside a card."""
    runner.load(mlp.document)
    task = mlp.parameters, digits, SEED, STEP
    wanted, packed = runner.compute(*task), runner.compute_payload(*task, "fp32")
    filled, fill = list[int](), AnswerMemory.fill

    def fill_room(room: AnswerMemory) -> None:
        fill(room)
        filled.append(room.memory.size)

    monkeypatch.setattr(AnswerMemory, "fill", fill_room)
    assert bits(runner.compute(*task)) == bits(wanted)
    assert filled == []
    monkeypatch.setattr(runner, "settings", replace(runner.settings, device="cuda"))
    assert bits(runner.compute(*task)) == bits(wanted)
    assert runner.compute_payload(*task, "fp32") == packed
    assert len(filled) == 2
    assert filled[0] >= filled[1] == len(packed)


def test_a_state_that_has_a_name_stays_with_the_child_until_another_request(
    runner: Runner, mlp: Published, digits: Arrays
) -> None:
    """Other values under the first one's name, which an honest caller never sends, show that the first ones stay."""
    document, half = runner.load(mlp.document), {name: array / 2 for name, array in mlp.parameters.items()}

    def compute(state: dict[str, np.ndarray], name: str) -> bytes:
        return bytes(runner.compute_payload(state, digits, SEED, STEP, "fp32", name))

    whole, halved = compute(dict(mlp.parameters), ""), compute(half, "")
    assert whole != halved
    assert [compute(dict(mlp.parameters), "a"), compute(half, "a"), compute(half, "a")] == [whole] * 3
    assert [compute(half, "b"), compute(dict(mlp.parameters), "b")] == [halved] * 2
    assert compute(dict(mlp.parameters), "") == whole
    assert compute(half, "a") == halved
    assert document.digest == runner.current
    runner.bound(STEP.pass_rows)
    assert compute(dict(mlp.parameters), "c") == whole
    runner.load(runner.publish("mlp", {"hidden": [16]}, IMAGES, seed=1).document)  # its bytes lie where the state was
    runner.load(mlp.document)
    runner.running().ask({"do": "release"})
    assert compute(half, "c") == halved


def test_a_child_takes_the_local_steps_of_its_round(runner: Runner, mlp: Published, digits: Arrays) -> None:
    """By gradients of the same child, and by inner steps that this process takes with another library's threads."""
    inner = InnerOptimizer(name="muon", lr=0.01, clip=1.0, schedule=Schedule(name="linear"))
    step = LocalStep(kind="local", rows=16, steps=4, rewarm=2, optimizer=inner)
    rule, state = load_optimizer("muon"), dict(mlp.parameters)
    document = runner.load(mlp.document)
    names, settings = [entry.name for entry in document.trainable], rule.Settings()
    memory = rule.start({name: state[name] for name in names}, settings)
    for place in range(4):
        part = {name: array[16 * place : 16 * place + 16] for name, array in digits.items()}
        answer = runner.compute(state, part, derive_part_seed(b"inner", place, SEED), GradientStep(rows=16))
        gradient = clip_gradient({name: answer[name] for name in names}, 1.0)
        lr = 0.01 * (1.0 - (2 * 4 + place) / 20) * min(1.0, (place + 1) / 2)
        moved, memory = rule.step({name: state[name] for name in names}, gradient, memory, lr, settings)
        state |= moved
    change = runner.compute(mlp.parameters, digits, SEED, step.in_round(2, 5))
    for name in names:
        np.testing.assert_array_equal(change[name], mlp.parameters[name] - state[name])
    assert bits(change) != bits(runner.compute(mlp.parameters, digits, SEED, step.in_round(3, 5)))


def test_publishing_is_a_function_of_the_seed(runner: Runner, mlp: Published) -> None:
    again = runner.publish("mlp", {"hidden": [32], "dropout": 0.25}, VECTORS, seed=1)
    other = runner.publish("mlp", {"hidden": [32], "dropout": 0.25}, VECTORS, seed=2)
    assert again.document == mlp.document == other.document
    assert bits(again.parameters) == bits(mlp.parameters) != bits(other.parameters)


def test_only_a_child_that_publishes_is_asked_to() -> None:
    with Runner() as other, pytest.raises(Refused, match="publishes nothing"):
        other.publish("mlp", {}, VECTORS, seed=1)


@pytest.mark.parametrize(
    ("architecture", "arguments", "field"),
    [
        ("resnet", {}, "model.architecture"),
        ("_arguments", {}, "model.architecture"),
        ("os", {}, "model.architecture"),
        ("mlp", {"hidden": "wide"}, "model.arguments.hidden"),
    ],
)
def test_an_unknown_architecture_or_argument_is_refused(
    runner: Runner, architecture: str, arguments: dict[str, str], field: str
) -> None:
    with pytest.raises(JobRefused) as refused:
        runner.publish(architecture, arguments, VECTORS, seed=1)
    assert refused.value.field == field
    assert str(refused.value).count(field) == 1


@pytest.mark.parametrize(
    "behaviour", leave_to_full(["lengths beyond the arena", "negative lengths", "an answer of another kind"])
)
def test_a_broken_child_publishes_nothing(monkeypatch: pytest.MonkeyPatch, behaviour: str) -> None:
    monkeypatch.setattr(market_runner, "PUBLISHING", (sys.executable, "-I", str(STRANGE), behaviour))
    with Runner(RunnerSettings(seconds=PATIENCE_S)) as taken:
        taken.turn("", publishes=True)
        with pytest.raises(RunnerCrashed):
            taken.publish("mlp", {}, VECTORS, seed=1)
        assert taken.pid is None


def test_the_parent_does_not_import_torch() -> None:
    code = "import sys, gradmarket.runner, gradmarket.market.sampling; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
