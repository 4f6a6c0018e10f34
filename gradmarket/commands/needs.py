"""Computes a job's needs from its model's sizes: operations, memory, bytes, money and time. Needs neither service nor
torch.
"""

import math
from dataclasses import dataclass
from typing import Final

from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry, payload_bytes
from gradmarket.market.gradient.published_update import update_bytes
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Manifest
from gradmarket.market.sampling import layout_in, list_training_partitions
from gradmarket.market.step import LocalStep
from gradmarket.runner import DocumentInfo
from gradmarket.runner.task_cost import compute_task_cost, count_moments
from graphdoc.figures import Bound

CARDS: Final = (
    ("RTX 3050", 8),
    ("RTX 3060", 12),
    ("RTX 4060 Ti", 16),
    ("RTX 4090", 24),
    ("RTX 5090", 32),
    ("L40S", 48),
    ("H100", 80),
    ("H200", 141),
)
"""GPUs by memory in GB, from NVIDIA's product pages (2025); one GPU for each size."""
CONTEXT_BYTES: Final = 10**9
"""Bytes that CUDA and its libraries take on a GPU before any tensor."""
MARGIN: Final = 1.25
"""Factor on the bound for operators' workspaces and fragmentation, which the bound does not count."""
MILLION: Final = 10**6
START_S: Final = (8.1, 0.387)
"""Seconds from a job's posting to its first round: of a small model, and more for each million parameters. From
benchmarks/results/newcomer.json (newcomer.container.job_s) and large.json (large.round_s.r1)."""
ROUND_S: Final = {
    (False, 0): ((1.0, 0.12), (10.8, 0.46)),
    (True, 0): ((1.0, 0.23), (10.8, 0.83)),
    (False, 1): ((1.0, 0.01), (10.8, 0.08)),
    (True, 1): ((1.0, 0.02), (10.8, 0.23)),
}
"""(whether several replicas answer, overlap) -> two measured points of (million parameters, seconds of a round besides
its step), from benchmarks/results/overlap.json (overlap.round_s)."""
FORWARD_AND_BACK: Final = 6
"""Operations for each parameter and row, in a language model each token (Kaplan et al. 2020, section 2.1)."""


@dataclass(frozen=True)
class Speed:
    """The assumed workers: their number, the TFLOP and the Mbit per second of each."""

    tflops: float
    mbit: float
    workers: int


@dataclass(frozen=True)
class Resources:
    """Per task unless stated otherwise. Bytes, seconds; `card` is empty if no GPU is large enough or suitable."""

    operations: int
    memory: int
    card: str
    only_on_cpu: str
    """Why no GPU computes it; see figures.Bound."""
    download: int
    """Parameters, or the updates since the worker's last task. The task's partition comes on top if the worker does not
    have it yet."""
    partition: int
    upload: int
    task_seconds: float
    rounds: int
    overlap: int
    replicas: int
    """Of the whole job, if no replicas disagree."""
    traffic_down: int
    """Of the whole job: parameters or updates for each replica, and once per worker every partition, and the whole
    parameters where it follows updates."""
    traffic_up: int
    """Of the whole job: one payload per task."""
    kept: int
    """On the requester's disk: the parameters and payloads of the newest rounds, which a failed audit may take back."""
    start_seconds: float
    """Of the whole job, from its posting to its first round."""
    overhead_seconds: float
    """Of a round, besides its tasks' seconds."""
    job_seconds: float
    """From its posting to its end."""
    tokens: int
    """Of a task's rows; 0 where these have none."""
    compares_rows: str
    """The effect of tasks and microbatches on a loss that compares rows with each other; empty for other losses."""


def compute_resources(
    spec: JobSpec, manifest: Manifest, info: DocumentInfo, bound: Bound, speed: Speed, compares_rows: str = ""
) -> Resources:
    """Returns the needs of a job over this data, from its document and the bound of one pass."""
    task = compute_task_cost(info.document, bound, spec.step)
    partitions = [partition.bytes for partition in list_training_partitions(manifest, spec)]
    layout = layout_in(spec, info.layout)
    card = "" if task.only_on_cpu else smallest_card(task.step_memory)
    labelled = manifest.labelled
    length = math.prod(labelled.shape) if labelled is not None and labelled.reads == "tokens" else 0
    sizes = _Sizes(
        task.operations, task.memory, task.state, layout, info.layout, spec.step.moves * spec.step.room * length
    )
    return _build_resources(spec, speed, sizes, partitions, card, task.only_on_cpu, compares_rows)


def estimate_large_model(spec: JobSpec, parameters: int, speed: Speed) -> Resources:
    """Returns the job's needs with a model of `parameters` float32 parameters, from their number alone.

    Memory is a lower bound: parameters, gradient and the inner optimizer's memory, without activations. `operations`
    are FORWARD_AND_BACK for each parameter and row.
    """
    layout = Layout((LayoutEntry("loss", (), "loss"), LayoutEntry("parameters", (parameters,), "gradient")))
    kept = 2 + (count_moments(spec.step.optimizer) if isinstance(spec.step, LocalStep) else 0)
    rows = spec.step.rows * (spec.step.steps if isinstance(spec.step, LocalStep) else 1)
    memory = 4 * parameters * kept
    sizes = _Sizes(FORWARD_AND_BACK * parameters * rows, memory, 4 * parameters, layout, layout)
    return _build_resources(spec, speed, sizes, [], smallest_card(memory), "", "")


@dataclass(frozen=True)
class _Sizes:
    """Of a task; `sent` is the layout of its answer, `whole` that of the model."""

    operations: int
    memory: int
    state: int
    sent: Layout
    whole: Layout
    tokens: int = 0


def _build_resources(
    spec: JobSpec, speed: Speed, sizes: _Sizes, partitions: list[int], card: str, only_on_cpu: str, compares_rows: str
) -> Resources:
    upload = payload_bytes(sizes.sent, load_codec(spec.uplink.codec))
    tasks, replicas = spec.sizes.all, spec.sizes.all * spec.replication.replicas
    download = task_download(spec, sizes.whole, sizes.state, speed.workers)
    first = sum(partitions) + (sizes.state if download < sizes.state else 0)
    seconds = sizes.operations / (speed.tflops * 1e12) + 8 * (download + upload) / (speed.mbit * 1e6)
    millions = sizes.state / 4 / MILLION
    # the tasks that each worker computes one after another where none waits for another
    together, each = 1 + spec.overlap, (1 + spec.overlap) * spec.replication.replicas
    turns = sum(
        -(-(stage.end - stage.first) // together) * -(-each * stage.tasks // speed.workers)
        for stage in spec.sizes.stages
    )
    start, overhead = START_S[0] + START_S[1] * millions, estimate_overhead(spec, millions)
    return Resources(
        operations=sizes.operations,
        memory=sizes.memory,
        card=card,
        only_on_cpu=only_on_cpu,
        download=download,
        partition=max(partitions, default=0),
        upload=upload,
        task_seconds=seconds,
        rounds=spec.rounds,
        overlap=spec.overlap,
        replicas=replicas,
        traffic_down=replicas * download + min(replicas, speed.workers) * first,
        traffic_up=tasks * upload,
        kept=(spec.final_after + 1) * sizes.state + spec.final_after * spec.sizes.most * upload,
        start_seconds=start,
        overhead_seconds=overhead,
        job_seconds=start + spec.rounds * overhead + turns * seconds,
        tokens=sizes.tokens,
        compares_rows=compares_rows,
    )


def estimate_overhead(spec: JobSpec, millions: float) -> float:
    """Returns the seconds of a round besides its tasks', linear in the parameters through the two measured models."""
    (low, first), (high, last) = ROUND_S[spec.replication.replicas > 1, spec.overlap]
    return max(0.0, first + (last - first) * (millions - low) / (high - low))


def task_download(spec: JobSpec, layout: Layout, whole: int, workers: int) -> int:
    """Returns the bytes of a task's parameters for a worker that has as many tasks as the others.

    With a downlink it follows the updates of all rounds since its last task, unless the whole is fewer bytes.
    """
    if not spec.downlink.small:
        return whole
    since = max(1, -(-workers * spec.rounds // (spec.sizes.all * spec.replication.replicas)))
    update, first = update_bytes(layout, load_codec(spec.downlink.codec)), spec.downlink.first
    if first is not None:  # the mean, where the first rounds have another codec
        more = update_bytes(layout, load_codec(first.codec)) - update
        update += more * min(first.rounds, spec.rounds) // spec.rounds
    return min(whole, since * update)


def smallest_card(memory: int) -> str:
    """Returns the GPU with the least memory in which a task of `memory` bytes fits, or an empty string."""
    needed = memory * MARGIN + CONTEXT_BYTES
    return next((f"{name} ({size} GB)" for name, size in CARDS if needed <= size * 10**9), "")


def list_resource_lines(costs: Resources, speed: Speed) -> list[tuple[str, str]]:
    """Returns names and values for display."""
    rows = f" and a partition of {in_bytes(costs.partition)}" if costs.partition else ""
    assumed = f"at {speed.tflops:g} TFLOP/s and {speed.mbit:g} Mbit/s, {speed.workers} workers"
    card = costs.card or f"none has {in_bytes(int(costs.memory * MARGIN))}"
    if not costs.card and costs.only_on_cpu:
        card = f"none: {costs.only_on_cpu}"
    parts = costs.job_seconds, costs.start_seconds, costs.overhead_seconds, costs.task_seconds
    whole, start, overhead, task = map(in_words_of_time, parts)
    time = f"about {whole}: {start} to begin, {overhead} a round besides its tasks, {task} a task; {assumed}"
    warned = [("attention", costs.compares_rows)] if costs.compares_rows else []
    return [
        ("a task", f"{costs.operations / 1e12:.4g} TFLOP, {in_bytes(costs.memory)} of memory"),
        ("smallest card", card),
        ("down, up", f"{in_bytes(costs.download)}{rows}, {in_bytes(costs.upload)}"),
        ("rounds", f"{costs.rounds}{', each computed while the one before it is merged' if costs.overlap else ''}"),
        ("traffic", f"{in_bytes(costs.traffic_down)} down, {in_bytes(costs.traffic_up)} up"),
        ("disk", f"{in_bytes(costs.kept)} of the service, for rounds that may still be taken back"),
        ("time", time),
        *warned,
    ]


def in_words_of_time(seconds: float) -> str:
    """Returns a duration in words, such as "40 s", "12 min" or "3.5 h"."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"


def in_bytes(count: int) -> str:
    """Returns a number of bytes in words, such as "3.1 MB"."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
