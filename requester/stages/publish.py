"""Turns a posted job into a publication: stores its document, parameters and manifest as blobs, by digest."""

from collections.abc import Sequence
from functools import partial

from gradmarket.market.admissible import move_of
from gradmarket.market.errors import JobRefused, MarketError, NotFound
from gradmarket.market.gradient.round_update import build_model_state
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.job_parts import ReadyModel
from gradmarket.market.release import PROTOCOL
from gradmarket.market.rules.pricing import PricedWork
from gradmarket.market.sampling import check_weighed
from gradmarket.market.terms import Amount, Digest, JobState
from graphdoc import tensors
from graphdoc.encoding import canonical
from requester import dataset
from requester.context import Context
from requester.feature import beginning_of, features_of
from requester.moves import admission, blob_cleanup, named_blobs
from requester.store import jobs, ready_rows
from requester.store.facts import Facts, as_json, layout_facts, price_of
from requester.store.locks import hold_named_lock, lock_row
from requester.store.tables import Job
from requester.store.work import RowReader, record_event

TOPIC = "publish"


def ready(reader: RowReader, _now: float) -> Sequence[str]:
    return ready_rows.list_drafts(reader)


def run(context: Context, job_id: str) -> float | None:
    with hold_named_lock(context.sessions, f"{TOPIC} {job_id}") as mine:
        if not mine:
            return context.settings.sweep_s
        try:
            return _publish_or_fail(context, job_id)
        except NotFound:
            return context.settings.sweep_s  # another job dropped a blob of equal content meanwhile: publish again


def _publish_or_fail(context: Context, job_id: str) -> float | None:
    """Publishes the job, or fails it. Raises NotFound if a blob of the publication was deleted meanwhile.

    Returns the seconds until the next call where the job that it continues is not over.
    """
    try:
        with context.reading() as reader:
            job = reader.get_one(Job, job_id)
            spec, token = beginning_of(reader).find_start(reader, jobs.load_spec(job)), job.token
        if spec is None:
            return context.settings.sweep_s
        publication, facts = _build_publication(context, job_id, spec, token)
        spec.price.of(PricedWork(facts.flops, Amount(int(context.chain_facts.unit))), None)
    except MarketError as error:
        with context.begin() as work:
            job, now, reason = lock_row(work, Job, job_id), context.clock(), str(error)
            if job.state == JobState.DRAFT:
                work.set_state_now(job, JobState.FAILED, reason=reason, ended_at=now)
                record_event(work, job_id, "failed", now, reason=reason)
        return None
    with context.begin() as work:
        job = lock_row(work, Job, job_id)
        if job.state != JobState.DRAFT:
            return None
        blobs = (
            publication.document,
            publication.evaluation,
            publication.metrics,
            publication.parameters,
            publication.manifest,
        )
        blob_cleanup.lock_and_restore_blobs(
            context,
            work,
            {digest: partial(_raise_gone_blob, digest) for digest in (*blobs, facts.memory) if digest is not None},
        )
        job.spec = publication.spec.model_dump(mode="json")
        job.publication, job.spec_digest = publication.model_dump(mode="json"), publication.digest
        job.facts = as_json(facts)
        job.protocol = PROTOCOL  # a draft may be of an earlier release: it is opened now, by the rules of this one
        job.price = price_of(work, job, None)
        work.set_state_now(job, JobState.AWAITING_FUNDS, reason="waits for its deposit on-chain")
        record_event(work, job_id, "published", context.clock(), spec_digest=publication.digest)
        work.notify("settle")
    return None


def _raise_gone_blob(digest: Digest) -> None:
    raise NotFound(f"blob {digest} is gone")


def _build_publication(context: Context, job_id: str, spec: JobSpec, token: str) -> tuple[Publication, Facts]:
    named_blobs.check_spec(context, spec, token)
    manifest = admission.find_manifest(context, spec)
    if manifest is None:
        raise NotFound("the data that come with the service are not here")
    for feature in features_of(context):
        feature.store_data(context, spec, manifest)
    dataset.check_dataset(context.blobs, spec, manifest)
    named_blobs.check_partitions(context, spec, manifest, token)  # once all are here: none becomes unserved after this
    if isinstance(spec.model, ReadyModel):
        models = (feature.publish_model(context, spec, manifest) for feature in features_of(context))
        model = next(filter(None, models))
    else:
        for field, digest in (("model.document", spec.model.document), ("model.parameters", spec.model.parameters)):
            if not context.blobs.has(digest):
                raise JobRefused(field, f"upload it first: PUT /v1/blobs/{digest}")
        model = context.modelling.describe_model(context.blobs, spec, spec.model)
    spec = spec.model_copy(update={"step": model.step})
    dataset.check_inputs(manifest, model.inputs)
    check_weighed(spec, model.layout)
    for feature in features_of(context):
        feature.check_model(context, spec, model, manifest)
    fresh = build_model_state(
        model.layout, tensors.unpack_tensors(context.blobs.read(model.parameters)), move_of(spec)
    ).memory
    start, parameters = spec.continue_from, model.parameters
    if start is not None:
        with context.reading() as reader:
            memory = beginning_of(reader).check_state_fits(reader, context.blobs, start, model.layout, fresh)
        parameters = start.parameters or parameters
    else:
        memory = context.blobs.put(tensors.pack_tensors(fresh))
    publication = Publication(
        job=job_id,
        spec=spec,
        document=model.document,
        evaluation=model.evaluation,
        metrics=model.metrics,
        parameters=parameters,
        manifest=context.blobs.put(canonical(manifest.model_dump(mode="json"))),
    )
    for feature in features_of(context):
        feature.check_publication(context, publication, manifest)
    facts = Facts(
        layout=layout_facts(model.layout),
        counters=model.counters,
        flops=model.flops,
        peak_bytes=model.peak_bytes,
        memory=memory,
        weighed=model.layout.weighed,
    )
    return publication, facts
