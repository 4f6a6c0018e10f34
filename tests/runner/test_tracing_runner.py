"""A confined child commits to a task as the task is computed, and does one operation again from bytes alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pytest
from blake3 import blake3

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.runner import DocumentInfo, RunnerSettings
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner
from gradmarket.runner.market_runner import TaskInputs
from graphdoc.tracing.values import Traced, pack_value, unpack_value
from tests.kit.traced import SEED, SmallTask, parse_step, small_cnn
from tests.market.test_traced import STEPS
from tests.patience import PATIENCE_S


@dataclass(frozen=True)
class Started:
    runner: TracingRunner
    task: SmallTask

    @cached_property
    def inputs(self) -> TaskInputs:
        published = self.task.published
        batch = published.gather(published.rows())
        return TaskInputs(published.rows(), published.parameters, batch, SEED, self.task.step, self.task.codec)


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    with TracingRunner(RunnerSettings(memory_bytes=2**30, seconds=PATIENCE_S)) as runner:
        runner.turn("job")
        yield Started(runner, small_cnn(parse_step(**STEPS["local"]), "int8"))


def test_a_tracing_runner_commits_to_the_answer_and_redoes_every_operation(started: Started) -> None:
    runner, inputs, task = started.runner, started.inputs, started.task
    info = DocumentInfo.of(runner.load(task.model.document))
    answer = runner.compute(inputs.state, inputs.batch, SEED, inputs.step)
    payload = encode_payload(info.layout, answer, load_codec(inputs.codec), SEED)
    committed = runner.trace(inputs)
    assert (committed.root, committed.leaves) == (blake3(payload).digest(), [])
    assert len(committed.checkpoints) == runner.outline(inputs, 0).parts == inputs.step.moves + 2
    for part in (0, 2, inputs.step.moves + 1):
        whole, trace = runner.outline(inputs, part), runner.trace(inputs, [part])
        assert trace.checkpoints == committed.checkpoints
        assert len(trace.leaves) == whole.count - 1
        assert len(trace.checkpoints[part]) == 32 * whole.lasting
        for leaf in (0, len(trace.leaves) // 2, len(trace.leaves) - 1):
            told = runner.describe(inputs, part, leaf)
            assert told.name == task.operations.plan[whole.first + leaf].name
            shown = runner.trace(inputs, (), told.slots).values
            assert runner.redo(inputs, whole.first + leaf, shown) == trace.leaves[leaf]


def test_malformed_values_are_refused_by_a_tracing_runner(started: Started) -> None:
    runner, inputs = started.runner, started.inputs
    runner.load(started.task.model.document)
    last = runner.outline(inputs, inputs.step.moves + 1)
    read = runner.describe(inputs, inputs.step.moves + 1, last.count - 2).slots
    with pytest.raises(Refused, match="not the bytes"):
        runner.redo(inputs, last.first + last.count - 2, [b"\0\0\0\1x" for _ in read])


def test_a_tracing_runner_judges_results_by_their_rounding_bound(started: Started) -> None:
    runner, inputs, plan = started.runner, started.inputs, started.task.operations.plan
    runner.load(started.task.model.document)
    number = next(leaf for leaf in range(len(plan)) if "linear" in plan[leaf].name and plan[leaf].kind == "call")
    part = next(part for part in range(plan.count_parts) if number in plan.find_part(part))
    first = runner.outline(inputs, part).first
    slots = runner.describe(inputs, part, number - first).slots
    values, own = (runner.trace(inputs, (), wanted).values for wanted in (slots, [(number, 0)]))
    assert runner.judge(inputs, number, values, own) is True
    result = unpack_value(own[0])
    assert result is not None
    moved = pack_value(Traced(result.tensor("cpu") + 1.0))
    assert runner.judge(inputs, number, values, [moved]) is False
    other = next(leaf for leaf in plan.find_part(part) if "conv" in plan[leaf].name and plan[leaf].kind == "call")
    read = runner.trace(inputs, (), runner.describe(inputs, part, other - first).slots).values
    given = runner.trace(inputs, (), [(other, place) for place in range(plan[other].results)]).values
    assert runner.judge(inputs, other, read, given) is None, "nothing bounds a convolution's rounding"
