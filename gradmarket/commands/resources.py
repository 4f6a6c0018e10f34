"""What a job takes: operations, memory and bytes of a task, rounds, traffic and time. Nothing is posted for it."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradmarket.client import RequesterClient
from gradmarket.market.data.manifest import Manifest, training
from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.payload import payload_bytes
from gradmarket.market.job import JobSpec, LinkedData, ReadyModel
from gradmarket.market.model.task_cost import cost
from gradmarket.requester.blobs.disk import DiskBlobs
from gradmarket.requester.ready_data import digits
from gradmarket.runner import DocumentInfo, Runner

Service = Callable[[], RequesterClient]
"""Opens the service's client, where something lies there."""

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
"""Cards by memory in GB, as NVIDIA's product pages state it (2025); of several with one memory, one."""
CONTEXT_BYTES: Final = 10**9
"""What CUDA and its libraries take of a card before any tensor."""
MARGIN: Final = 1.25
"""Of the bound, for operators' workspaces and fragments, which it does not count."""


@dataclass(frozen=True)
class Speed:
    """What a worker is taken to have: operations and bits a second; and how many workers there are."""

    tflops: float
    mbit: float
    workers: int


@dataclass(frozen=True)
class Resources:
    """Of one task where nothing else is said. Bytes, seconds; `card` is empty where none is large enough or fit."""

    operations: int
    memory: int
    card: str
    only_on_cpu: str
    """Why no card computes it; see figures.Bound."""
    download: int
    """Parameters; with the task's partition where a worker has not got it yet."""
    partition: int
    upload: int
    task_seconds: float
    rounds: int
    replicas: int
    """Of the whole job, where nobody disagrees."""
    traffic_down: int
    """Of the whole job: parameters for each replica, and every partition once for each worker."""
    traffic_up: int
    """Of the whole job: one payload for each task."""
    job_seconds: float


def resources(spec: JobSpec, market: Service, speed: Speed) -> Resources:
    """Makes a ready model here; what was uploaded `market` has. Raises JobRefused, NotFound."""
    with Runner() as runner:
        manifest = _manifest(spec, market)
        info = _document(runner, spec, manifest, market)
        found = cost(info.document, runner.bound(*spec.step.pass_sizes), spec.step)
    partitions = [partition.bytes for partition in training(manifest, spec)]
    upload = payload_bytes(info.layout, codec(spec.uplink.codec))
    tasks = spec.rounds * spec.tasks_per_round
    replicas = tasks * spec.replication.replicas
    compute = found.operations / (speed.tflops * 1e12)
    seconds = compute + 8 * (found.state + upload) / (speed.mbit * 1e6)
    turns = -(-spec.tasks_per_round * spec.replication.replicas // speed.workers)
    return Resources(
        operations=found.operations,
        memory=found.memory,
        card="" if found.only_on_cpu else smallest_card(found.step_memory),
        only_on_cpu=found.only_on_cpu,
        download=found.state,
        partition=max(partitions, default=0),
        upload=upload,
        task_seconds=seconds,
        rounds=spec.rounds,
        replicas=replicas,
        traffic_down=replicas * found.state + min(replicas, speed.workers) * sum(partitions),
        traffic_up=tasks * upload,
        job_seconds=spec.rounds * turns * seconds,
    )


def smallest_card(memory: int) -> str:
    """The card with the least memory in which a task of so many bytes fits, or none."""
    needed = memory * MARGIN + CONTEXT_BYTES
    return next((f"{name} ({size} GB)" for name, size in CARDS if needed <= size * 10**9), "")


def lines(found: Resources, speed: Speed) -> list[tuple[str, str]]:
    """As people read it."""
    assumed = f"at {speed.tflops:g} TFLOP/s and {speed.mbit:g} Mbit/s, {speed.workers} workers"
    return [
        ("a task", f"{found.operations / 1e12:.4g} TFLOP, {_bytes(found.memory)} of memory"),
        ("smallest card", found.card or _no_card(found)),
        ("down, up", f"{_bytes(found.download)} and a partition of {_bytes(found.partition)}, {_bytes(found.upload)}"),
        ("rounds", str(found.rounds)),
        ("traffic", f"{_bytes(found.traffic_down)} down, {_bytes(found.traffic_up)} up"),
        ("time", f"{found.job_seconds:.3g} s, {found.task_seconds:.3g} s a task: {assumed}"),
    ]


def _no_card(found: Resources) -> str:
    return f"none: {found.only_on_cpu}" if found.only_on_cpu else f"none has {_bytes(int(found.memory * MARGIN))}"


def _bytes(count: int) -> str:
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _manifest(spec: JobSpec, market: Service) -> Manifest:
    if isinstance(spec.data, LinkedData):
        return Manifest.model_validate_json(_blob(market, spec.data.manifest))
    with tempfile.TemporaryDirectory() as folder:
        return digits.manifest(DiskBlobs(Path(folder)))


def _document(runner: Runner, spec: JobSpec, manifest: Manifest, market: Service) -> DocumentInfo:
    if not isinstance(spec.model, ReadyModel):
        return runner.load(_blob(market, spec.model.document))
    if manifest.labelled is None:
        raise JobRefused("model.architecture", "a ready one takes data of `x`, and `y` with its number of `classes`")
    made = runner.publish(spec.model.architecture, spec.model.arguments, manifest.labelled, spec.seed, spec.precision)
    return runner.load(made.document)


def _blob(market: Service, digest: str) -> bytes:
    with market() as there:
        return there.blob(digest)
