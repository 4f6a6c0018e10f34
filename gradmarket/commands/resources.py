"""Loads a job's model and data to estimate its needs: built here, or fetched from the service. Posts nothing."""

from collections.abc import Callable, Sequence
from typing import Final

from gradmarket import coupled_rows
from gradmarket.client import RequesterClient
from gradmarket.commands.needs import Resources, Speed, compute_resources, in_bytes
from gradmarket.market.errors import JobRefused, OutOfMemory, Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import PrivateData, ReadyData, ReadyModel
from gradmarket.market.manifest import Manifest
from gradmarket.market.sampling import check_weighed, list_training_partitions
from gradmarket.ready_data import digits
from gradmarket.runner import DocumentInfo, Runner
from graphdoc import tensors
from graphdoc.document.schema import parse_document, set_arithmetic
from graphdoc.figures import Bound
from requester.dataset import OURS
from requester.settings import LEAST_MODEL_MEMORY, RequesterSettings

MEASURED: Final = 124_439_808
"""Parameters of the largest model of benchmarks/results/large.json."""
Service = Callable[[], RequesterClient]
"""Opens the service's client, if something must be fetched from the service."""


def estimate_resources(spec: JobSpec, market: Service, speed: Speed) -> Resources:
    """Computes the needs. Builds a ready model here, fetches uploads from `market`. Raises JobRefused, NotFound."""
    with Runner() as runner:
        try:
            manifest, info, bound = _load_in_runner(runner, spec, market)
        except OutOfMemory as error:
            remedy = "plan it by its number of parameters: such as --parameters 1e9"
            raise Refused(
                f"building the model takes more memory than this machine has: {error.detail}", remedy
            ) from error
        coupled = _describe_row_coupling(runner, spec, manifest, market)
    return compute_resources(spec, manifest, info, bound, speed, coupled)


def describe_limits(spec: JobSpec, parameters: int, memory: int) -> list[str]:
    """Returns the limits by which a service and workers with default settings refuse a model of this many float32
    parameters.
    """
    limits, whole = RequesterSettings.model_fields, 4 * parameters
    blob, step = (limits[name].default for name in ("max_blob_bytes", "step_memory"))
    described = []
    if whole > blob:
        described.append(
            f"parameters of {in_bytes(whole)}: a service stores {in_bytes(blob)} (GRADMARKET_MAX_BLOB_BYTES)"
        )
    if memory > step:
        described.append(f"{in_bytes(memory)} a task: workers' devices have {in_bytes(step)} (GRADMARKET_STEP_MEMORY)")
    if isinstance(spec.model, ReadyModel) and 2 * whole > LEAST_MODEL_MEMORY:
        least = f"half of its memory, {in_bytes(LEAST_MODEL_MEMORY)} at least"
        described.append(f"a service builds ready models in {least} (GRADMARKET_MODEL_MEMORY): upload a document")
    if parameters > MEASURED:
        described.append(f"nothing larger than GPT-2 small ({MEASURED // 10**6} million) was trained here yet")
    return described


def load_document_and_bound(spec: JobSpec, market: Service) -> tuple[Manifest, DocumentInfo, Bound]:
    """Returns the job's manifest, its document, and the bound of one pass. Raises as `resources` does."""
    with Runner() as runner:
        return _load_in_runner(runner, spec, market)


def _load_in_runner(runner: Runner, spec: JobSpec, market: Service) -> tuple[Manifest, DocumentInfo, Bound]:
    if isinstance(spec.data, PrivateData) and spec.data.manifest is None:
        manifest = Manifest(inputs=spec.data.inputs, partitions=())
    elif not isinstance(spec.data, ReadyData):
        manifest = Manifest.model_validate_json(_fetch_blob(market, spec.data.manifest or ""))
    else:
        manifest = digits.build_manifest()
    if not isinstance(spec.model, ReadyModel):
        document = _fetch_blob(market, spec.model.document)
    elif manifest.labelled is None:
        raise JobRefused("model.architecture", "the inputs of a ready one are `x`, and `y` with its `classes`")
    else:
        runner.turn("plan", publishes=True)
        ready = (spec.model.architecture, spec.model.arguments, manifest.labelled)
        model = runner.publish(*ready, spec.seed, spec.precision)
        document = set_arithmetic(model.document, spec.document_arithmetic)
    info = DocumentInfo.of(runner.load(document))
    check_weighed(spec, info.layout)
    return manifest, info, runner.bound(*spec.step.pass_sizes, by_row=spec.step.by_row)


def _describe_row_coupling(runner: Runner, spec: JobSpec, manifest: Manifest, market: Service) -> str:
    """Describes the effect of a loss that compares rows, measured on four rows of the first partition."""
    first = next(iter(list_training_partitions(manifest, spec)), None)
    if (
        isinstance(spec.model, ReadyModel)
        or first is None
        or first.rows < coupled_rows.ROWS
        or not first.link.startswith(OURS)
    ):
        return ""
    document = _fetch_blob(market, spec.model.evaluation or spec.model.document)
    arrays = runner.read_partition(manifest, first, _fetch_blob(market, first.digest))
    state = tensors.unpack_tensors(_fetch_blob(market, spec.model.parameters), parse_document(document).state)

    def measured(rows: Sequence[int]) -> tuple[float, None]:
        return runner.evaluate(document, state, {name: array[list(rows)] for name, array in arrays.items()}).loss, None

    try:
        found = coupled_rows.find_coupling(measured, spec.precision)
    except Refused:  # rows that cannot be measured so: none has a target, for example
        return ""
    return coupled_rows.describe_coupling(found, spec.step, spec.sizes.most) if found else ""


def _fetch_blob(market: Service, digest: str) -> bytes:
    with market() as client:
        return client.blob(digest)
