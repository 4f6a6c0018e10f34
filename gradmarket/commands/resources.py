"""What a job needs: operations, memory and bytes of a task, rounds, traffic and time. Posts nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gradmarket.client import RequesterClient
from gradmarket.market.data.manifest import Manifest, list_training_partitions
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import payload_bytes
from gradmarket.market.gradient.published_update import update_bytes
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import PrivateData, ReadyData, ReadyModel
from gradmarket.market.model import coupled_rows
from gradmarket.market.model.layout import check_weighed, layout_in
from gradmarket.market.model.task_cost import compute_task_cost
from gradmarket.runner import DocumentInfo, Runner
from graphdoc import tensors
from graphdoc.document.schema import parse_document
from graphdoc.figures import Bound
from requester.dataset import OURS
from requester.ready_data import digits

Service = Callable[[], RequesterClient]
"""Opens the service's client, if something must be fetched from the service."""

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
    job_seconds: float
    compares_rows: str
    """What tasks and microbatches mean for a loss that compares rows with each other; empty for one that does not."""


def estimate_resources(spec: JobSpec, market: Service, speed: Speed) -> Resources:
    """Computes the needs. Builds a ready model here, fetches uploads from `market`. Raises JobRefused, NotFound."""
    with Runner() as runner:
        manifest, info, bound = _load_in_runner(runner, spec, market)
        coupled = _describe_row_coupling(runner, spec, manifest, market)
    task = compute_task_cost(info.document, bound, spec.step)
    partitions = [partition.bytes for partition in list_training_partitions(manifest, spec)]
    upload = payload_bytes(layout_in(spec, info.layout), load_codec(spec.uplink.codec))
    tasks = spec.sizes.all
    replicas = tasks * spec.replication.replicas
    download = task_download(spec, info, task.state, speed.workers)
    first = sum(partitions) + (task.state if download < task.state else 0)
    compute = task.operations / (speed.tflops * 1e12)
    seconds = compute + 8 * (download + upload) / (speed.mbit * 1e6)
    return Resources(
        operations=task.operations,
        memory=task.memory,
        card="" if task.only_on_cpu else smallest_card(task.step_memory),
        only_on_cpu=task.only_on_cpu,
        download=download,
        partition=max(partitions, default=0),
        upload=upload,
        task_seconds=seconds,
        rounds=spec.rounds,
        overlap=spec.overlap,
        replicas=replicas,
        traffic_down=replicas * download + min(replicas, speed.workers) * first,
        traffic_up=tasks * upload,
        job_seconds=_count_turns(spec, speed.workers) * seconds,
        compares_rows=coupled,
    )


def load_document_and_bound(spec: JobSpec, market: Service) -> tuple[Manifest, DocumentInfo, Bound]:
    """Returns the job's manifest, its document, and the bound of one pass. Raises as `resources` does."""
    with Runner() as runner:
        return _load_in_runner(runner, spec, market)


def _load_in_runner(runner: Runner, spec: JobSpec, market: Service) -> tuple[Manifest, DocumentInfo, Bound]:
    manifest = _fetch_manifest(spec, market)
    info = _load_document(runner, spec, manifest, market)
    check_weighed(spec, info.layout)
    return manifest, info, runner.bound(*spec.step.pass_sizes, by_row=spec.step.by_row)


def task_download(spec: JobSpec, info: DocumentInfo, whole: int, workers: int) -> int:
    """Returns the bytes of a task's parameters for a worker that has as many tasks as the others.

    With a downlink it follows the updates of all rounds since its last task, unless the whole is fewer bytes.
    """
    if not spec.downlink.small:
        return whole
    since = max(1, -(-workers * spec.rounds // (spec.sizes.all * spec.replication.replicas)))
    return min(whole, since * _update_bytes(spec, info))


def _update_bytes(spec: JobSpec, info: DocumentInfo) -> int:
    """Returns the bytes of a round's update: the mean, where the first rounds have another codec."""
    later, first = update_bytes(info.layout, load_codec(spec.downlink.codec)), spec.downlink.first
    if first is None:
        return later
    more = update_bytes(info.layout, load_codec(first.codec)) - later
    return later + more * min(first.rounds, spec.rounds) // spec.rounds


def _count_turns(spec: JobSpec, workers: int) -> int:
    """Returns how many tasks each worker computes one after another where none waits for another."""
    together = 1 + spec.overlap
    return sum(
        -(-(stage.end - stage.first) // together) * -(-together * stage.tasks * spec.replication.replicas // workers)
        for stage in spec.sizes.stages
    )


def smallest_card(memory: int) -> str:
    """Returns the GPU with the least memory in which a task of so many bytes fits, or an empty string."""
    needed = memory * MARGIN + CONTEXT_BYTES
    return next((f"{name} ({size} GB)" for name, size in CARDS if needed <= size * 10**9), "")


def list_resource_lines(costs: Resources, speed: Speed) -> list[tuple[str, str]]:
    """Returns names and values for display."""
    down = in_bytes(costs.download)
    assumed = f"at {speed.tflops:g} TFLOP/s and {speed.mbit:g} Mbit/s, {speed.workers} workers"
    warned = [("attention", costs.compares_rows)] if costs.compares_rows else []
    return [
        ("a task", f"{costs.operations / 1e12:.4g} TFLOP, {in_bytes(costs.memory)} of memory"),
        ("smallest card", costs.card or _no_card(costs)),
        ("down, up", f"{down} and a partition of {in_bytes(costs.partition)}, {in_bytes(costs.upload)}"),
        ("rounds", f"{costs.rounds}{', each computed while the one before it is merged' if costs.overlap else ''}"),
        ("traffic", f"{in_bytes(costs.traffic_down)} down, {in_bytes(costs.traffic_up)} up"),
        ("time", f"{costs.job_seconds:.3g} s, {costs.task_seconds:.3g} s a task: {assumed}"),
        *warned,
    ]


def _no_card(costs: Resources) -> str:
    return f"none: {costs.only_on_cpu}" if costs.only_on_cpu else f"none has {in_bytes(int(costs.memory * MARGIN))}"


def in_bytes(count: int) -> str:
    """Returns a number of bytes in words, such as "3.1 MB"."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _fetch_manifest(spec: JobSpec, market: Service) -> Manifest:
    if isinstance(spec.data, PrivateData) and spec.data.manifest is None:
        return Manifest(inputs=spec.data.inputs, partitions=())
    if not isinstance(spec.data, ReadyData):
        return Manifest.model_validate_json(_fetch_blob(market, spec.data.manifest or ""))
    return digits.build_manifest()


def _load_document(runner: Runner, spec: JobSpec, manifest: Manifest, market: Service) -> DocumentInfo:
    if not isinstance(spec.model, ReadyModel):
        return DocumentInfo.of(runner.load(_fetch_blob(market, spec.model.document)))
    if manifest.labelled is None:
        raise JobRefused("model.architecture", "the inputs of a ready one are `x`, and `y` with its `classes`")
    runner.turn("plan", publishes=True)
    model = runner.publish(spec.model.architecture, spec.model.arguments, manifest.labelled, spec.seed, spec.precision)
    return DocumentInfo.of(runner.load(model.document))


def _describe_row_coupling(runner: Runner, spec: JobSpec, manifest: Manifest, market: Service) -> str:
    """Returns what is to be said of a loss that compares rows, measured on four of the first partition's."""
    first = next(iter(list_training_partitions(manifest, spec)), None)
    if (
        isinstance(spec.model, ReadyModel)
        or first is None
        or first.rows < coupled_rows.ROWS
        or not first.link.startswith(OURS)
    ):
        return ""
    document = _fetch_blob(market, spec.model.evaluation or spec.model.document)
    arrays = runner.read(first.format, _fetch_blob(market, first.digest), manifest.batch(first.rows))
    state = tensors.unpack_tensors(_fetch_blob(market, spec.model.parameters), parse_document(document).state)

    def measured(rows: Sequence[int]) -> tuple[float, None]:
        return runner.evaluate(document, state, {name: array[list(rows)] for name, array in arrays.items()}).loss, None

    try:
        found = coupled_rows.find_coupling(measured, spec.precision)
    except Refused:  # rows that cannot be measured so: none has a target, say
        return ""
    return coupled_rows.describe_coupling(found, spec.step, spec.sizes.most) if found else ""


def _fetch_blob(market: Service, digest: str) -> bytes:
    with market() as client:
        return client.blob(digest)
