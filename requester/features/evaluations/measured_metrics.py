"""Which metrics a job measures: checked before it is paid for, so that no rule waits for one that never comes."""

from collections.abc import Iterator

from gradmarket.market.data.manifest import Manifest
from gradmarket.market.errors import JobRefused, Refused, RunnerFailed, RunnerTimeout
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.job_parts import DocumentModel
from gradmarket.market.rules import metric_names
from gradmarket.market.rules.stopping import StopAtMetric, StopAtPatience
from graphdoc import tensors
from graphdoc.document.schema import parse_document
from requester.context import Context
from requester.model_runner import FIRST_METRICS_S


def check_metrics(context: Context, publication: Publication, manifest: Manifest) -> None:
    """Checks that what the job asks for is measured, and where it has a metrics document measures it once.

    Raises JobRefused, DocumentRefused.
    """
    spec = publication.spec
    if spec.evaluation is None:
        return
    known = _list_metrics(context, publication)
    for field, name in _list_named_metrics(spec):
        if name not in known:
            raise JobRefused(field, f"nothing measures {name!r}: there is {', '.join(known)}; {_remedy(spec, name)}")
    if publication.metrics is None:
        return
    partition = manifest.named(spec.evaluation.partition)
    initial = tensors.unpack_tensors(context.blobs.read(publication.parameters))
    try:
        measured = context.modelling.evaluate(
            context.blobs, publication, initial, manifest, partition, FIRST_METRICS_S, first=True
        )
    except RunnerTimeout as error:
        long = f"measuring them on {partition.rows} rows takes more than {FIRST_METRICS_S:g} s here"
        raise JobRefused("evaluation.metrics", f"{long}: hold out fewer rows, or name fewer metrics") from error
    except (Refused, RunnerFailed) as error:
        raise JobRefused("evaluation.metrics", f"they cannot be measured: {error}") from error
    if undefined := [name for name in spec.evaluation.metrics if name not in measured]:
        absent = f"{undefined[0]} is not defined on the rows of {partition.name}: do they have every class?"
        raise JobRefused("evaluation.metrics", absent)


def _list_metrics(context: Context, publication: Publication) -> list[str]:
    """Returns all that its evaluations measure."""
    sums = parse_document(context.blobs.read(publication.evaluation or publication.document)).metrics
    whole = () if publication.metrics is None else parse_document(context.blobs.read(publication.metrics)).metrics
    return [metric_names.LOSS, *sorted({*sums, *whole})]


def _list_named_metrics(spec: JobSpec) -> Iterator[tuple[str, str]]:
    for name in spec.evaluation.metrics if spec.evaluation else ():
        yield "evaluation.metrics", name
    for place, rule in enumerate(spec.stop):
        if isinstance(rule, StopAtMetric | StopAtPatience):
            yield f"stop.{place}.metric", rule.metric


def _remedy(spec: JobSpec, name: str) -> str:
    if not metric_names.is_ready(name):
        return f"ready-made are {', '.join(metric_names.READY)}"
    if isinstance(spec.model, DocumentModel):
        return "name the document that measures it in model.metrics"
    return "name it in evaluation.metrics"
