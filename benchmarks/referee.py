"""A refereed dispute over a GPT of 10.8 million parameters: what committing and judging cost.

All of it is CPU time of this process, so that other programs count little. The step is that of wan_steps: inner steps
of 8 rows of 128 tokens. Committing is tracing a task against computing it. The referee's share is that of the dearest
operation: its inputs read and checked by digest, and computed.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import mean

import numpy as np
import torch

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
from graphdoc.document.publish import next_token, publish_module
from graphdoc.tracing.packed import digest_packed
from tests.kit.traced import SEED, SmallTask, asked

PREFIX = "referee"
ROWS, STEPS, TIMES = sized((8, 100, 3), (1, 2, 1))
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
        kinds[name_kind(plan[leaf])].append(leaf)
    shapes = {leaf: _count_elements(task, leaf) for leaf in range(len(plan))}
    return [max(leaves, key=lambda leaf: shapes[leaf]) for leaves in kinds.values()]


def name_kind(operation: TaskOperation) -> str:
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
