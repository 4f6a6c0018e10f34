"""A refereed dispute over a GPT of 10.8 million parameters: what committing and judging cost, and which lies are found.

All of it is CPU time of this process, so that other programs count little. The step is that of wan_steps: inner steps
of 8 rows of 128 tokens. Committing is tracing a task against computing it. The referee's share is that of the dearest
operation: its inputs read and checked by digest, and computed. Lies are about one element of one result of one
operation, drawn evenly from every kind of operation of small documents, and followed up by an honest computation.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from statistics import mean

import numpy as np
import torch
from torch import nn

from benchmarks.figure import Figure
from benchmarks.rig.rounds import GPT_10M
from benchmarks.size import sized
from gradmarket.market.disputes.questions import LENGTH, count_questions
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.merkle import HASH_BYTES, count_levels
from gradmarket.market.model.architectures import gpt
from gradmarket.market.model.compute import compute_step
from gradmarket.market.model.traced.course import PlanCourse, redo_operation
from gradmarket.market.model.traced.plan import Slot, TaskOperation
from gradmarket.market.model.traced.run import trace_task
from gradmarket.market.signing import address_of
from graphdoc.document.publish import next_token, publish_module
from graphdoc.tracing.packed import digest_packed
from tests.kit.disputes import LIAR, hear, tell_lie
from tests.kit.traced import SEED, Arrays, SmallTask, asked, publish, small_cnn
from tests.models import text

PREFIX = "referee"
ROWS, STEPS, TIMES = sized((8, 100, 3), (1, 2, 1))
LIES = sized(2000, 20)
ADAMW = {"name": "adamw", "lr": 3e-4}


def measure() -> Iterator[Figure]:
    task = _build_gpt(1)
    task.operations.plan  # noqa: B018
    step_s = _measure_cpu(lambda: _compute(task))
    traced_s = _measure_cpu(lambda: trace_task(task.operations))
    note = f"{step_s:.2f} s an inner step, {traced_s:.2f} s traced, {len(task.operations.plan)} operations"
    yield Figure("referee.commit", traced_s / step_s - 1, "of the step", target="<= 0.15", note=note)
    yield from _measure_shares(task, step_s)
    yield _measure_messages(_build_gpt(STEPS))
    yield from _find_lies()


def _build_gpt(steps: int) -> SmallTask:
    torch.manual_seed(1)
    example = torch.zeros(2, *GPT_10M.shape, dtype=torch.int64)
    module = gpt.build(GPT_10M.arguments, GPT_10M.shape, GPT_10M.classes)
    tokens = np.random.default_rng(0).integers(0, GPT_10M.classes, (ROWS * steps, *GPT_10M.shape))
    step = asked(kind="local", steps=steps, rows=ROWS, optimizer=ADAMW)
    return SmallTask(publish_module(module, next_token, (example, example)), {"x": tokens, "y": tokens}, step)


def _compute(task: SmallTask) -> memoryview:
    published, traced = task.published, task.operations.plan.task
    batch = published.gather(published.rows())
    answer = compute_step(traced.program, published.parameters, batch, SEED, task.step)
    return encode_payload(traced.layout, answer, traced.codec, SEED)


def _measure_cpu(run: Callable[[], object]) -> float:
    """Returns the least CPU seconds of a few runs, after one that warms up."""
    run()
    taken = []
    for _ in range(TIMES):
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return min(taken)


def _measure_shares(task: SmallTask, step_s: float) -> Iterator[Figure]:
    """Every kind of operation by its dearest: those of one kind whose inputs have the most elements."""
    course, plan = PlanCourse(task.operations.plan), task.operations.plan
    dearest = _choose_operations(task)
    inputs = trace_task(task.operations, {slot for leaf in dearest for slot in course.slots(leaf)}).values
    taken: dict[int, float] = {}
    for leaf in dearest:
        packed = [inputs[slot] for slot in course.slots(leaf)]

        def judge(leaf: int = leaf, packed: list[bytes] = packed) -> None:
            for value in packed:
                digest_packed(value)
            redo_operation(task.operations, leaf, packed)

        taken[leaf] = _measure_cpu(judge)
    most = max(taken, key=lambda leaf: taken[leaf])
    note = f"the dearest, {plan[most].name.partition(', ')[2]}: {taken[most]:.3f} s; of {STEPS} inner steps"
    yield Figure("referee.share.gpt10m", taken[most] / (STEPS * step_s), "of the step", target="<= 0.01", note=note)
    note = f"beside one inner step alone; the mean of {len(taken)} kinds is {mean(taken.values()) / step_s:.2g}"
    yield Figure("referee.share.gpt10m.inner", taken[most] / step_s, "of an inner step", note=note)


def _choose_operations(task: SmallTask) -> list[int]:
    plan, kinds = task.operations.plan, defaultdict[str, list[int]](list)
    for leaf in range(len(plan)):
        kinds[_name_kind(plan[leaf])].append(leaf)
    shapes = {leaf: _count_elements(task, leaf) for leaf in range(len(plan))}
    return [max(leaves, key=lambda leaf: shapes[leaf]) for leaves in kinds.values()]


def _name_kind(operation: TaskOperation) -> str:
    if operation.kind != "call":
        return operation.kind
    step, _ = operation.about
    return f"{step.way} {step.call.step.name}"


def _count_elements(task: SmallTask, leaf: int) -> int:
    """Returns the elements of the parameters that an operation reads."""
    state = task.operations.plan.task.program.document.state
    names = list(state)
    slots = (read for read in task.operations.plan[leaf].reads if isinstance(read, Slot))
    return sum(int(np.prod(state[names[slot.leaf - 1]][0])) for slot in slots if 1 <= slot.leaf <= len(names))


def _measure_messages(task: SmallTask) -> Figure:
    """The most bytes of both sides' answers beside the values, over every operation of an inner step and the tail."""
    course, plan = PlanCourse(task.operations.plan), task.operations.plan
    levels, ends = count_levels(len(plan)), [*range(len(plan.head)), *range(len(plan) - len(plan.tail), len(plan))]
    first = len(plan.head)
    leaves = [*ends, *range(first, first + len(plan.list_step(0)))]

    def count(leaf: int) -> int:
        path = LENGTH + HASH_BYTES * levels
        read = sum(LENGTH + HASH_BYTES * course.results(one) + path for one in course.reads(leaf))
        own = LENGTH + HASH_BYTES * course.results(leaf)
        root = 3 * LENGTH + 2 * HASH_BYTES + HASH_BYTES * levels
        return 2 * (root + 2 * HASH_BYTES * levels + own + read + 65 * count_questions(len(plan)))

    most = max(leaves, key=count)
    mean_bytes = mean(count(leaf) for leaf in leaves)
    note = f"{plan[most].name}; {mean_bytes / 1024:.3g} KiB in the mean; {len(plan)} operations, both sides"
    return Figure("referee.messages.gpt10m", count(most) / 1024, "KiB", target="<= 64", note=note)


@dataclass(frozen=True)
class _Lied:
    task: SmallTask

    @cached_property
    def kinds(self) -> dict[str, list[int]]:
        found, plan = defaultdict[str, list[int]](list), self.task.operations.plan
        for leaf in range(len(plan)):
            if plan[leaf].results:
                found[_name_kind(plan[leaf])].append(leaf)
        return dict(found)


def _find_lies() -> Iterator[Figure]:
    """Lies by turns over the tasks, and in each over its kinds of operation."""
    draw, tasks = Random(31), [_Lied(task) for task in _build_small_tasks()]
    told, found, kinds = 0, 0, set[str]()
    while told < LIES:
        one = tasks[told % len(tasks)]
        kind = draw.choice(list(one.kinds))
        leaf = draw.choice(one.kinds[kind])
        lie = tell_lie(one.task, leaf, draw.randrange(one.task.operations.plan[leaf].results), draw)
        if lie is None:
            continue
        verdict, _ = hear(one.task, lie)
        told += 1
        kinds.add(kind)
        found += verdict.leaf == leaf and verdict.wrong == {address_of(LIAR)}
    note = f"of {told} lies, over {len(kinds)} kinds of operation in {len(tasks)} tasks"
    yield Figure("referee.lies_found", found, "lies", target=f">= {told}", note=note)


def _build_small_tasks() -> Iterator[SmallTask]:
    yield small_cnn(asked(rows=12, microbatch=5), "int4")
    clipped = {"name": "adamw", "lr": 0.01, "clip": 0.1}
    yield small_cnn(asked(kind="local", steps=2, rows=4, optimizer=clipped, proximal=0.1), "topk")
    yield small_cnn(asked(kind="local", steps=2, rows=4, optimizer={"name": "muon", "lr": 0.01}), "two_bit")
    draw = np.random.default_rng(3)
    flat: Arrays = {"x": draw.standard_normal((40, 9, 3)).astype(np.float32), "y": draw.integers(0, 3, 40)}
    step = asked(rows=6, microbatch=4)
    for layers in ([nn.Flatten(), nn.Linear(27, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3)],):
        yield SmallTask(publish(nn.Sequential(*layers), (9, 3)), flat, step, "fp4")
    yield SmallTask(publish(_Last(nn.LSTM(3, 4, batch_first=True)), (9, 3)), flat, step, "bf16")
    torch.manual_seed(2)
    words = draw.integers(1, 16, (40, 6))
    model = publish_module(text.GPT(17, 8, 8, 1), next_token, (torch.ones(2, 6).long(), torch.ones(2, 6).long()))
    yield SmallTask(model, {"x": words, "y": words}, step, "int8")


class _Last(nn.Module):
    def __init__(self, recurrence: nn.RNNBase) -> None:
        super().__init__()
        self.recurrence, self.head = recurrence, nn.Linear(4, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.recurrence(rows)[0][:, -1])
        return answer
