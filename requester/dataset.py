"""A job's manifest, as its requester uploaded it, and its checks before work begins."""

import httpx

from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import LinkedData, PrivateData
from gradmarket.market.manifest import Manifest, Partition, parse_manifest
from gradmarket.market.sampling import list_training_partitions
from gradmarket.market.terms import Digest
from gradmarket.market.wire.audit_messages import OTHER_DRAWS
from gradmarket.network.environment import path_of
from graphdoc.tensors import Expected
from requester.blobs import Blobs

MANIFEST_BYTES = 64 * 2**20
OURS = "/v1/blobs/"
"""Prefix of links to the service's own blobs."""


def manifest_of(blobs: Blobs, data: LinkedData | PrivateData, url: str) -> Manifest:
    """Returns the manifest of a job's dataset; `url` is this service's own. Raises JobRefused.

    A link to one of its blobs becomes a path, in any spelling: blobs stored here are checked here.
    """
    if isinstance(data, PrivateData) and data.manifest is None:
        return Manifest(inputs=data.inputs, partitions=())
    digest = data.manifest or Digest("")
    if not blobs.has(digest):
        raise JobRefused("data.manifest", f"upload it first: PUT {OURS}{digest}")
    if blobs.length(digest) > MANIFEST_BYTES:
        raise JobRefused("data.manifest", f"a manifest has at most {MANIFEST_BYTES} bytes")
    manifest = parse_manifest(blobs.read(digest))
    parts = (part.model_copy(update={"link": own_path(part.link, url)}) for part in manifest.partitions)
    return manifest.model_copy(update={"partitions": tuple(parts)})


def own_path(link: str, url: str) -> str:
    """Returns the path of a link to a blob of the service at `url`; any other link unchanged."""
    if link.startswith(OURS):
        return link
    own = httpx.URL(url.rstrip("/") + "/")
    try:
        resolved = own.join(link)
    except (httpx.InvalidURL, ValueError):
        return link
    path = resolved.path.removeprefix(path_of(url))
    return path if _build_origin(resolved) == _build_origin(own) and path.startswith(OURS) else link


def _build_origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def check_rows_of_a_task(manifest: Manifest, spec: JobSpec) -> None:
    """Checks that every partition has enough rows for a task, and that the held-out one exists. Raises JobRefused."""
    partitions = list_training_partitions(manifest, spec)
    if spec.private and manifest.inputs != spec.private.inputs:
        raise JobRefused("data.inputs", "the manifest in data.manifest has other inputs: pack your own rows alike")
    if not partitions and not spec.private:
        raise JobRefused("data.manifest.partitions", "no partition is left to train on besides the held-out one")
    for partition in partitions:
        if spec.step.rows > partition.rows:
            has = f"partition {partition.name!r} has {partition.rows} rows: name {partition.rows} or fewer"
            raise JobRefused("step.rows", f"{spec.step.rows} is too many: {has}")
        if spec.verifier.scored and (1 + OTHER_DRAWS) * spec.step.moves * spec.step.rows > partition.rows:
            compared = f"{spec.verifier.name} holds a task's rows against {OTHER_DRAWS} times as many others"
            raise JobRefused(
                "step.rows", f"{compared}, and partition {partition.name!r} has only {partition.rows} rows"
            )
    if spec.evaluation is not None:
        manifest.named(spec.evaluation.partition)


def check_dataset(blobs: Blobs, spec: JobSpec, manifest: Manifest) -> None:
    """Checks that every partition has enough rows for a task, and that those linked to this service are stored here.

    Raises JobRefused.
    """
    check_rows_of_a_task(manifest, spec)
    for partition in list_training_partitions(manifest, spec):
        if partition.link.startswith(OURS):
            check_here(blobs, partition)
    if spec.evaluation is not None:
        check_here(blobs, manifest.named(spec.evaluation.partition))


def check_inputs(manifest: Manifest, inputs: Expected) -> None:
    """Checks that the partitions have the inputs that the model reads of one row. Raises JobRefused."""
    declared = manifest.batch(1)
    if dict(inputs) != declared:
        names = sorted(name for name in {*inputs, *declared} if inputs.get(name) != declared.get(name))
        texts = (
            f"{name}: the model reads {_describe_rows(inputs, name)}, it has {_describe_rows(declared, name)}"
            for name in names
        )
        reads = "; ".join(texts)
        raise JobRefused("data.manifest.inputs", reads[:500])


def _describe_rows(expected: Expected, name: str) -> str:
    if name not in expected:
        return "nothing"
    shape, dtype = expected[name]
    return f"{dtype}{list(shape[1:])} a row"


def check_here(blobs: Blobs, partition: Partition) -> None:
    field = f"data.manifest.partitions.{partition.name}"
    linked = partition.link.removeprefix(OURS) if partition.link.startswith(OURS) else partition.digest
    if linked != partition.digest:
        raise JobRefused(field, f"its link names {linked[:80]}, its digest is {partition.digest}")
    if not blobs.has(partition.digest):
        raise JobRefused(field, f"upload it first: PUT {OURS}{partition.digest}")
    if blobs.length(partition.digest) != partition.bytes:
        raise JobRefused(field, f"it has {blobs.length(partition.digest)} bytes, not {partition.bytes}")
