"""A refereed dispute over a GPT of 10.8 million parameters: committing and judging.

All of it is CPU time of this process, so that other programs count little. The step is that of wan_steps: inner steps
of 8 rows of 128 tokens. Committing is tracing a task by its checkpoints against computing it, with one thread: two
would count their waiting for each other's cores. The referee's share is that of the dearest operation: its inputs read
and checked by digest, and computed.
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
from gradmarket.market.features.disputes.questions import LENGTH, count_questions
from gradmarket.market.features.log.merkle import HASH_BYTES, count_levels
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.runner.architectures import gpt
from gradmarket.runner.features.disputes.traced.course import PlanCourse, redo_operation
from gradmarket.runner.features.disputes.traced.plan import Slot, TaskOperation
from gradmarket.runner.features.disputes.traced.run import trace_task
from gradmarket.runner.steps import compute_step
from graphdoc.document.publish import next_token, publish_module
from graphdoc.tracing.packed import digest_packed
from tests.kit.traced import SEED, SmallTask, parse_step

PREFIX = "referee"
ROWS, STEPS, TIMES = sized((8, 100, 3), (1, 2, 1))
ADAMW = {"name": "adamw", "lr": 3e-4}


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    task = _build_gpt(1)
    task.operations.plan  # noqa: B018
    step_s = _measure_cpu(lambda: _compute(task))
    traced_s = _measure_cpu(lambda: trace_task(task.operations, detailed=()))
    detailed_s = _measure_cpu(lambda: trace_task(task.operations))
    note = (
        f"{step_s:.2f} s a task of one inner step, {traced_s:.2f} s with its checkpoints; once a dispute names a part,"
    )
    note += f" {detailed_s:.2f} s with each of {len(task.operations.plan)} operations"
    yield Figure("referee.commit", traced_s / step_s - 1, "of the step", target="<= 0.15", note=note)
    yield from _measure_shares(task, step_s)
    yield _measure_messages(_build_gpt(STEPS))


def _build_gpt(steps: int) -> SmallTask:
    torch.manual_seed(1)
    example = torch.zeros(2, *GPT_10M.shape, dtype=torch.int64)
    module = gpt.build(GPT_10M.arguments, GPT_10M.shape, GPT_10M.classes)
    tokens = np.random.default_rng(0).integers(0, GPT_10M.classes, (ROWS * steps, *GPT_10M.shape))
    step = parse_step(kind="local", steps=steps, rows=ROWS, optimizer=ADAMW)
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
    """Yields the referee's share for each kind's dearest operation: that with the most elements in its inputs."""
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
    parts = (0, 1, course.parts - 1)
    asked_most = count_questions(course.parts, max(map(course.count, parts)))

    def count_tree(leaves: int) -> int:
        """Root, last leaf with its proof, and the children on the way down."""
        return 4 * LENGTH + HASH_BYTES * (2 + 3 * count_levels(leaves))

    def count(operation: tuple[int, int]) -> int:
        part, leaf = operation
        described, path = course.describe(part, leaf), LENGTH + HASH_BYTES * count_levels(course.count(part))
        if leaf == course.count(part) - 1:
            described = described._replace(reads=described.reads[-1:])
        read = sum(LENGTH + HASH_BYTES * course.describe(part, one).results + path for one in described.reads)
        before = HASH_BYTES * (course.lasting(part - 1) + count_levels(course.parts)) if part else 0
        trees = count_tree(course.parts) + count_tree(course.count(part))
        return 2 * (trees + before + LENGTH + HASH_BYTES * described.results + read + 65 * asked_most)

    operations = [(part, leaf) for part in parts for leaf in range(course.count(part))]
    most = max(operations, key=count)
    mean_bytes = mean(map(count, operations))
    name = course.describe(*most).name
    note = f"{name}; {mean_bytes / 1024:.3g} KiB in the mean; {len(plan)} operations, both sides"
    return Figure("referee.messages.gpt10m", count(most) / 1024, "KiB", target="<= 64", note=note)
