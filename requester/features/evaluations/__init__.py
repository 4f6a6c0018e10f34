"""Evaluations: which metrics a job measures, and the parameters that did best on the held-out rows.

Metrics are checked before the job is paid for, so that no rule waits for one that never comes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gradmarket.market.errors import JobRefused, OutOfMemory, Refused, RunnerFailed, RunnerTimeout
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.job_parts import DocumentModel, Evaluation
from gradmarket.market.manifest import Manifest, parse_manifest
from gradmarket.market.rules import metric_names
from gradmarket.market.rules.lifecycle import UNMEASURED
from gradmarket.market.rules.stopping import StopAtMetric, StopAtPatience, find_direction
from gradmarket.market.terms import Digest
from graphdoc import tensors
from graphdoc.cost import EVALUATION_ROWS, evaluation_cost, pass_sizes
from graphdoc.document.schema import parse_document
from requester.context import Context
from requester.feature import Feature
from requester.features.evaluations.evaluator import Evaluator
from requester.features.row_checks.partition_rows import PartitionRows
from requester.model_runner import PUBLISHING, ModelRunner, PublishedModel
from requester.moves import blob_cleanup
from requester.store import jobs, merges, unneeded
from requester.store.tables import Job, Round
from requester.store.work import Work

FASTEST: Final = 10**11
"""Operations a second that no runner exceeds: an evaluation of more than these in its time cannot end."""
FIRST_METRICS_S: Final = 10.0
"""Seconds of wall time that metrics of all held-out rows may take before the job begins, on a service that may have
more to do later.
"""


def _check_cost(
    modelling: ModelRunner, model: PublishedModel, document: bytes, rows: int, at_once: int, seconds: float = math.inf
) -> None:
    with modelling.hold_posting_runner() as runner:
        runner.turn(model.child, publishes=model.child == PUBLISHING)
        bound, most = runner.bound_evaluation(document, *pass_sizes(rows, at_once)), runner.settings
    needed = evaluation_cost(parse_document(document), bound, rows, at_once)
    if needed.memory - bound.idle_bytes > most.memory_bytes:
        raise JobRefused(
            "evaluation", f"it takes {needed.memory} bytes, more than this machine has: hold out fewer rows"
        )
    if needed.operations > min(seconds, most.seconds) * FASTEST:
        raise JobRefused("evaluation", f"{needed.operations:.3g} operations are too many: hold out fewer rows")


def check_metrics(context: Context, publication: Publication, manifest: Manifest) -> None:
    """Checks that the metrics that the job names are measured, and measures its metrics document, if any, once.

    Raises JobRefused, DocumentRefused.
    """
    spec = publication.spec
    if spec.evaluation is None:
        return
    sums = parse_document(context.blobs.read(publication.evaluation or publication.document)).metrics
    whole = () if publication.metrics is None else parse_document(context.blobs.read(publication.metrics)).metrics
    known: list[str] = [metric_names.LOSS, *sorted({*sums, *whole})]
    # the metrics that the job names, with their fields; the default of `evaluation.metric` counts as unnamed
    named = [("evaluation.metrics", name) for name in spec.evaluation.metrics]
    if spec.evaluation.metric != Evaluation.model_fields["metric"].default:
        named.insert(0, ("evaluation.metric", spec.evaluation.metric))
    rules = ((place, one) for place, one in enumerate(spec.stop) if isinstance(one, StopAtMetric | StopAtPatience))
    named += [(f"stop.{place}.metric", rule.metric) for place, rule in rules]
    own = isinstance(spec.model, DocumentModel)
    for field, name in named:
        if name in known:
            continue
        remedy = f"ready-made are {', '.join(metric_names.READY)}"
        if metric_names.is_ready(name):
            where = "the document that measures it in model.metrics" if own else "it in evaluation.metrics"
            remedy = f"name {where}"
        raise JobRefused(field, f"nothing measures {name!r}; measured are {', '.join(known)}; {remedy}")
    if publication.metrics is None:
        return
    partition = manifest.named(spec.evaluation.partition)
    initial = tensors.unpack_tensors(context.blobs.read(publication.parameters))
    try:
        measured = context.modelling.find_part(Evaluator).evaluate(
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


def evaluate_if_due(
    context: Context, spec: JobSpec, number: int, publication: Publication, parameters: Callable[[], Arrays]
) -> tuple[dict[str, float], str]:
    """Returns the metrics and, without any, a reason: a document or data that cannot be evaluated stops the job.

    Figures that are not finite are omitted. A model whose loss is not finite has diverged and gets no figure at all:
    among NaN scores the first class counts as the highest.
    """
    wanted = spec.evaluation
    if wanted is None or not wanted.is_due(number, spec.rounds):
        return {}, ""
    manifest = parse_manifest(context.blobs.read(publication.manifest))
    partition, arrays = manifest.named(wanted.partition), parameters()
    try:
        evaluator = context.modelling.find_part(Evaluator)
        figures = evaluator.evaluate(context.blobs, publication, arrays, manifest, partition)
    except (Refused, OutOfMemory, RunnerTimeout) as error:
        return {}, f"round {number} {UNMEASURED}: {error}"[:1000]
    if not math.isfinite(figures["loss"]):
        return {}, ""
    return {name: value for name, value in figures.items() if math.isfinite(value)}, ""


# The parameters that did best on the held-out rows are kept, however old they are.


def mark_best_round(work: Work, job: Job, row: Round, now: float) -> None:
    """Marks the round with the best parameters and releases the earlier best; called in the closing transaction."""
    spec = jobs.load_spec(job)
    if spec.evaluation is None:
        return
    before = None if job.best_round is None else work.get(Round, (job.id, job.best_round))
    measured = [(one.number, one.metrics or {}) for one in (before, row) if one is not None]
    job.best_round = find_best_round(
        spec.evaluation.metric, measured, find_direction(spec.stop, spec.evaluation.metric)
    )
    if before is not None and before.number not in (job.best_round, row.number):
        oldest = row.number - blob_cleanup.kept_newest(spec)
        unneeded.release_blobs(work, job.id, blob_cleanup.PARAMETERS, [before.updated], now, oldest)


def choose_best_again(context: Context, work: Work, job: Job) -> None:
    """Chooses the best of the rounds that stand and whose parameters are stored; called once merges were taken back."""
    spec = jobs.load_spec(job)
    if spec.evaluation is None:
        return
    newest = jobs.latest_closed(work, job.id)
    standing = merges.closed_between(work, job.id, -1, newest.number + 1) if newest else ()
    measured = [row for row in standing if row.metrics]
    kept = [(row.number, row.metrics or {}) for row in measured if context.blobs.has(Digest(row.updated or ""))]
    job.best_round = find_best_round(spec.evaluation.metric, kept, find_direction(spec.stop, spec.evaluation.metric))


class EvaluationsFeature(Feature):
    name = "evaluations"
    needs = ("row_checks",)

    def check_model(self, context: Context, spec: JobSpec, model: PublishedModel, manifest: Manifest) -> None:
        if spec.evaluation is not None:
            partition = manifest.named(spec.evaluation.partition)
            # a bad partition is refused now and not after a round
            try:
                context.modelling.find_part(PartitionRows).held_out(context.blobs, manifest, partition)
            except (Refused, RunnerFailed) as error:
                raise JobRefused("evaluation.partition", f"{partition.name!r} cannot be read: {error}") from error
            rows = partition.rows
            _check_cost(
                context.modelling, model, context.blobs.read(model.evaluation or model.document), rows, EVALUATION_ROWS
            )
            if model.metrics is not None:
                _check_cost(context.modelling, model, context.blobs.read(model.metrics), rows, rows, FIRST_METRICS_S)

    def evaluate_round(
        self, context: Context, spec: JobSpec, number: int, publication: Publication, parameters: Callable[[], Arrays]
    ) -> tuple[dict[str, float], str]:
        return evaluate_if_due(context, spec, number, publication, parameters)

    def check_publication(self, context: Context, publication: Publication, manifest: Manifest) -> None:
        check_metrics(context, publication, manifest)

    def round_closed(self, work: Work, job: Job, row: Round, now: float) -> None:
        mark_best_round(work, job, row, now)

    def rounds_undone(self, context: Context, work: Work, job: Job, first: int, now: float) -> None:
        choose_best_again(context, work, job)


def find_best_round(
    metric: str, rounds: Iterable[tuple[int, Mapping[str, float]]], better: metric_names.Better | None = None
) -> int | None:
    """Returns the round with the best value, the earliest of equal ones; None where none was measured.

    By the loss where no round has the metric; `better` is of the metric.
    """
    measured = sorted(rounds, key=lambda pair: pair[0])
    by = metric_names.choose_metric(metric, (metrics for _, metrics in measured))
    way = better if by == metric else None
    best: tuple[int, float] | None = None
    for number, metrics in measured:
        value = metrics.get(by)
        if value is not None and value == value and (best is None or metric_names.is_better(by, value, best[1], way)):
            best = number, value
    return None if best is None else best[0]
