"""Rows of unequal numbers of valid targets: neither microbatch nor task changes the minimized loss, that of torch."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gradmarket.compute.task_run import TaskRun
from gradmarket.market.errors import DocumentRefused, JobRefused, PayloadRefused, Refused
from gradmarket.market.gradient.aggregators import load_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import VALUE_BOUND, Diverged, Divergence, Inspection
from gradmarket.market.gradient.payload import encode_payload, read_tensors, weight_of
from gradmarket.market.gradient.payload_layout import WEIGHT_BYTES, build_layout, payload_bytes
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe, weight_scales
from gradmarket.market.sampling import find_row_weights_fault
from gradmarket.market.step import GradientStep, LocalStep, WindowStep
from gradmarket.runner.steps import compute_step
from graphdoc.cost import EVALUATION_ROWS
from graphdoc.document.graph import WEIGHT
from graphdoc.document.interpret import Program
from graphdoc.document.publish import publish_module
from graphdoc.document.schema import WEIGHED, parse_document
from graphdoc.figures import Published
from graphdoc.passes import evaluate
from tests.kit.whole_merge import merge_answers

Loss = Callable[[Tensor, Tensor], Tensor]
Arrays = dict[str, np.ndarray]
SEED, ROWS, PLACES, WORDS = bytes(32), 8, 12, 16
LENGTHS = (1, 2, 3, 4, 6, 8, 10, 12)
MEAN = load_aggregator("mean")


class Reader(nn.Module):
    """Scores of a word for every place; a mean over the places before the head mixes them, and no rows."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        states = self.words(x)
        return self.head(states + states.mean(1, keepdim=True).tanh())


def places(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return output.flatten(0, 1), y.flatten()


CLASSES = torch.linspace(0.25, 2.0, WORDS)


def ignoring(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(*places(output, y), ignore_index=-100)


def padding_by_class_0(output: Tensor, y: Tensor) -> Tensor:
    return 0.5 * functional.cross_entropy(*places(output, y.clamp(min=0)), ignore_index=0, label_smoothing=0.1)


def by_class(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(*places(output, y), weight=CLASSES)


def in_dimensions(output: Tensor, y: Tensor) -> Tensor:
    return functional.nll_loss(output.log_softmax(2).transpose(1, 2), y, weight=CLASSES)


def by_a_mask(output: Tensor, y: Tensor) -> Tensor:
    kept = y.ne(-100).float()
    each = functional.cross_entropy(*places(output, y), reduction="none").view_as(y)
    return (each * kept).sum() / kept.sum().clamp(min=1)


def with_a_penalty(output: Tensor, y: Tensor) -> Tensor:
    return ignoring(output, y) + 0.1 * ignoring(2.0 * output, y)


LOSSES = {loss.__name__: loss for loss in
          (ignoring, padding_by_class_0, by_class, in_dimensions, by_a_mask, with_a_penalty)}  # fmt: skip


def padded(rows: int = ROWS) -> Arrays:
    generator = np.random.default_rng(4)
    x, y = generator.integers(0, WORDS, (2, rows, PLACES))
    for row in range(rows):
        y[row, LENGTHS[row % len(LENGTHS)] :] = -100
    return {"x": x, "y": y}


def published(loss: Loss, rows: Arrays | None = None) -> Published:
    torch.manual_seed(2)
    example = {name: torch.from_numpy(array) for name, array in (rows or padded()).items()}
    return publish_module(Reader(), lambda output, y: (loss(output, y), {}), (example["x"], example["y"]))


@cache
def publish_ignoring() -> Published:
    return published(ignoring)


@pytest.fixture(scope="module", params=LOSSES)
def weighed(request: pytest.FixtureRequest) -> tuple[Loss, Published]:
    return LOSSES[request.param], published(LOSSES[request.param])


def alone(loss: Loss, made: Published, batch: Arrays) -> Arrays:
    """Loss and gradients as torch has them of all rows at once."""
    module = Reader()
    module.load_state_dict({name: torch.from_numpy(made.parameters[name].copy()) for name in module.state_dict()})
    value = loss(module(torch.from_numpy(batch["x"])), torch.from_numpy(batch["y"]))
    value.backward()
    found = {
        name: parameter.grad.numpy() for name, parameter in module.named_parameters() if parameter.grad is not None
    }
    return {"loss": value.detach().numpy(), **found}


def near(found: Arrays, expected: Arrays, tolerance: float = 3e-6) -> None:
    for name, array in expected.items():
        assert np.linalg.norm(found[name] - array) <= tolerance * max(1.0, np.linalg.norm(array)), name


def cut(batch: Arrays, rows: slice) -> Arrays:
    return {name: array[rows] for name, array in batch.items()}


def merged(made: Published, answers: list[Arrays], packed: str = "fp32") -> Arrays:
    own = build_layout(parse_document(made.document))
    recipe = Recipe(own, load_codec(packed), MEAN, MEAN.Settings(), 1e3, 16)
    return merge_answers(recipe, [MergedAnswer(encode_payload(own, one, recipe.codec, SEED), SEED) for one in answers])


@pytest.mark.parametrize("size", [1, 2, 3, 5, None])
def test_a_microbatch_changes_no_meaning(weighed: tuple[Loss, Published], size: int | None) -> None:
    loss, made = weighed
    answer = compute_step(
        Program(parse_document(made.document)), made.parameters, padded(), SEED, GradientStep(rows=8, microbatch=size)
    )
    near(answer, alone(loss, made, padded()))


@pytest.mark.parametrize("packed", ["fp32", "bf16"])
def test_four_tasks_of_two_rows_are_eight_rows(weighed: tuple[Loss, Published], packed: str) -> None:
    """Whatever rounds the gradients, the weights are exact."""
    loss, made = weighed
    program, batch = Program(parse_document(made.document)), padded()
    tasks = [
        compute_step(
            program, made.parameters, cut(batch, slice(first, first + 2)), SEED, GradientStep(rows=2, microbatch=1)
        )
        for first in range(0, ROWS, 2)
    ]
    near(merged(made, tasks, packed), alone(loss, made, batch), 3e-6 if packed == "fp32" else 2e-2)
    orders = [merged(made, tasks), merged(made, tasks[::-1])]
    assert all(orders[0][name].tobytes() == orders[1][name].tobytes() for name in orders[0])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, PLACES), min_size=2, max_size=6), st.integers(1, 6), st.integers(1, 6))
def test_any_lengths_microbatches_and_tasks_are_all_rows_at_once(lengths: list[int], size: int, per_task: int) -> None:
    """Rows without a target, microbatches and whole tasks of such rows count for nothing."""
    batch = padded(len(lengths))
    batch["y"][...] = np.where(np.arange(PLACES) < np.array(lengths)[:, None], np.abs(batch["y"]) % WORDS, -100)
    program, made = Program(parse_document(publish_ignoring().document)), publish_ignoring()
    tasks = []
    for first in range(0, len(lengths), per_task):
        part = cut(batch, slice(first, first + per_task))
        step = GradientStep(rows=len(part["x"]), microbatch=size)
        tasks.append(compute_step(program, made.parameters, part, SEED, step))
    found = merged(made, tasks)
    if sum(lengths):
        near(found, alone(ignoring, made, batch))
    else:
        assert all(not array.any() for array in found.values())


def test_an_evaluation_is_the_same_sorted_or_shuffled() -> None:
    batch = padded(2 * EVALUATION_ROWS + 8)
    order = np.argsort((batch["y"] >= 0).sum(1), kind="stable")
    program = Program(parse_document(publish_ignoring().evaluation))
    found = [evaluate(program, publish_ignoring().parameters, rows).loss for rows in (batch, cut(batch, order))]
    expected = float(alone(ignoring, publish_ignoring(), batch)["loss"])
    assert found == pytest.approx([expected, expected], rel=1e-6)
    batch["y"][...] = -100
    with pytest.raises(Refused, match="no measured row has a target"):
        evaluate(program, publish_ignoring().parameters, batch)


def test_one_local_step_of_sgd_is_a_gradient_and_windows_keep_the_bits() -> None:
    """Tasks of local steps weigh by all targets they saw; the state between windows has each inner step's weight."""
    program, batch, made = Program(parse_document(publish_ignoring().document)), padded(), publish_ignoring()
    inner = {"name": "sgd", "lr": 1.0}
    one = LocalStep(kind="local", steps=1, rows=2, microbatch=1, optimizer=inner)
    tasks = [
        compute_step(program, made.parameters, cut(batch, slice(at, at + 2)), SEED, one) for at in range(0, ROWS, 2)
    ]
    near(merged(made, tasks), alone(ignoring, made, batch), 3e-5)
    four = LocalStep(kind="local", steps=4, rows=2, optimizer={"name": "adamw", "lr": 0.01}, window=1)
    whole = compute_step(program, made.parameters, batch, SEED, four)
    assert float(whole[WEIGHT]) == float((batch["y"] >= 0).sum())

    def child(state: Arrays, rows: Arrays, seed: bytes, step: GradientStep | LocalStep | WindowStep) -> Arrays:
        return compute_step(program, state, rows, seed, step)

    own = replace(build_layout(program.document), leaves=four.leaves)
    task, states = TaskRun(child, own, four, made.parameters, batch, SEED), {}
    in_windows, leaves = task.whole(states.__setitem__)
    assert {name: array.tobytes() for name, array in in_windows.items()} == {
        name: array.tobytes() for name, array in whole.items()
    }
    digests = list(states)
    again, same = task.replay(1, digests, states.__getitem__)
    assert same == leaves
    assert again[WEIGHT] == whole[WEIGHT]


def test_the_weight_is_the_last_four_bytes_and_any_lie_gives_another_root() -> None:
    program = Program(parse_document(publish_ignoring().document))
    own = build_layout(program.document)
    answer = compute_step(program, publish_ignoring().parameters, padded(), SEED, GradientStep(rows=8))
    assert answer[WEIGHT] == sum(LENGTHS)
    for packed in (load_codec("fp32"), load_codec("two_bit"), load_codec("bf16")):
        payload = encode_payload(own, answer, packed, SEED)
        assert len(payload) == payload_bytes(replace(own, weighed=False), packed) + WEIGHT_BYTES
        assert weight_of(own, payload) == sum(LENGTHS)
        lie = encode_payload(own, {**answer, WEIGHT: np.array(2 * sum(LENGTHS), np.float32)}, packed, SEED)
        assert bytes(lie[:-WEIGHT_BYTES]) == bytes(payload[:-WEIGHT_BYTES])
        assert bytes(lie) != bytes(payload)
    with pytest.raises(PayloadRefused, match="the weight of its rows is missing"):
        encode_payload(own, {name: array for name, array in answer.items() if name != WEIGHT}, load_codec("fp32"), SEED)


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0, 2 * VALUE_BOUND])
def test_a_weight_that_cannot_be_one_is_not_merged(weight: float) -> None:
    inspection = Inspection(build_layout(parse_document(publish_ignoring().document)), 1.0)
    inspection.see_weight(weight)
    found = inspection.verdict()
    assert isinstance(found, Diverged)
    assert found.reason is Divergence.NO_WEIGHT


@pytest.mark.parametrize("claimed", [1.0, 1e6, VALUE_BOUND])
def test_a_holder_of_private_rows_sways_no_merge_by_a_weight(claimed: float) -> None:
    """Cheating twin: nobody can count a holder's targets, so its payload has no place for its claim."""
    program = Program(parse_document(publish_ignoring().document))
    private = replace(build_layout(program.document), weighed=False)
    honest = compute_step(program, publish_ignoring().parameters, padded(), SEED, GradientStep(rows=8))
    claiming = {**honest, WEIGHT: np.array(claimed, np.float32)}
    assert bytes(encode_payload(private, claiming, load_codec("fp32"), SEED)) == bytes(
        encode_payload(private, honest, load_codec("fp32"), SEED)
    )
    longer = bytes(encode_payload(replace(private, weighed=True), claiming, load_codec("fp32"), SEED))
    with pytest.raises(PayloadRefused, match="bytes"):
        list(read_tensors(private, longer, load_codec("fp32"), SEED))


@given(st.lists(st.integers(0, 2**24), min_size=1, max_size=20))
def test_scales_keep_the_mean_of_the_weights(weights: list[int]) -> None:
    """No claim moves a merged gradient beyond the longest answer: scales are positive and sum to their number."""
    scales = weight_scales(weights)
    assert sum(scales) == pytest.approx(len(weights))
    assert all(0.0 <= scale <= len(weights) * (1 + 1e-9) for scale in scales)


@pytest.mark.parametrize("claimed", [1e6, VALUE_BOUND])
def test_an_accepted_lie_about_a_weight_is_a_few_answers_and_no_whole_round(claimed: float) -> None:
    honest = [90.0, 100.0, 100.0, 110.0, 0.0]
    scales = weight_scales([*honest, claimed])
    assert scales[-1] / len(scales) == pytest.approx(800 / (400 + 800))
    assert weight_scales(honest) == pytest.approx([5 * weight / 400 for weight in honest])


def test_rows_alike_have_no_weight_and_the_same_bytes_as_before() -> None:
    full = padded()
    full["y"] = np.abs(full["y"]) % WORDS
    for loss in (ignoring, by_a_mask, lambda o, y: functional.cross_entropy(*places(o, y))):
        document = json.loads(published(loss, full).document)
        assert document["format"] == "gradgraph/1"
        assert "weight" not in document


def not_a_sum(output: Tensor, y: Tensor) -> Tensor:
    """Divided by the largest label: not the sum of its rows' largest labels."""
    return functional.cross_entropy(*places(output, y)) / y.max()


def of_the_model(output: Tensor, y: Tensor) -> Tensor:
    return output.square().sum() / (1.0 + output.abs().sum()) + 0 * y.sum()


@pytest.mark.parametrize("loss", [not_a_sum, of_the_model])
def test_a_divisor_is_a_weight_only_if_it_is_the_sum_of_its_rows(loss: Loss) -> None:
    assert parse_document(published(loss).document).weight is None


def test_a_weight_is_read_strictly() -> None:
    document = json.loads(publish_ignoring().document)
    assert document["format"] == WEIGHED
    for change, why in (
        ({"format": "gradgraph/1"}, "the keys are not"),
        ({"weight": 0}, "the weight is an input"),
        ({"weight": 10**6}, "not a value"),
    ):
        changed = json.dumps({**document, **change}, sort_keys=True, separators=(",", ":")).encode()
        with pytest.raises(DocumentRefused, match=why):
            parse_document(changed)


@pytest.mark.parametrize(
    ("chosen", "judged", "field"), [("median", "exact", "aggregator"), ("mean", "tolerance", "verifier")]
)
def test_plug_ins_that_cannot_weigh_rows_are_refused_by_their_field(chosen: str, judged: str, field: str) -> None:
    assert find_row_weights_fault("mean", "exact") == ""
    said = find_row_weights_fault(chosen, judged)
    assert said.startswith(field)
    assert JobRefused(*said.split(": ", 1)).field == field
