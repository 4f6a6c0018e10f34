"""Merges the accepted gradients of a round, applies the update, evaluates the new parameters, and closes the round."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Select, select

from gradmarket.market.data.manifest import parsed
from gradmarket.market.errors import OutOfMemory, Refused, RunnerTimeout
from gradmarket.market.gradient.aggregators import configured
from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.round_merge import MergedAnswer, ModelState, Recipe, apply, merge
from gradmarket.market.gradient.schedules import rate
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.model import tensors
from gradmarket.market.terms import Digest, Hash, JobState, RoundState, TaskState
from gradmarket.requester.context import Context
from gradmarket.requester.moves import blob_cleanup, drift
from gradmarket.requester.moves.admission import move_of
from gradmarket.requester.moves.ending import call_off
from gradmarket.requester.store import jobs, trusted_runs
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.facts import facts_of, layout_of
from gradmarket.requester.store.locks import alone, locked
from gradmarket.requester.store.tables import Job, Round, Task, TrustedRun
from gradmarket.requester.store.work import RowReader

TOPIC = "aggregate"


def ready(reader: RowReader, _now: float) -> Sequence[str]:
    """Returns jobs whose newest round has enough accepted tasks, or whose merge a crash interrupted."""
    running = select(Round, Job).join(Job, Job.id == Round.job_id)
    under_way = Round.state.in_([RoundState.OPEN, RoundState.MERGING])
    unclosed = running.where(under_way, Job.state == JobState.RUNNING)
    return [
        job.id
        for row, job in reader.session.execute(unclosed)
        if row.state == RoundState.MERGING or (job.rewind_to is None and jobs.lacks(reader, job, row.number) == 0)
    ]


def run(context: Context, job_id: str) -> float | None:
    with alone(context.sessions, f"{TOPIC} {job_id}") as mine:
        if not mine:
            return context.settings.sweep_s
        try:
            _run(context, job_id)
        except Exception as error:
            _say_why(context, job_id, f"the newest round cannot be merged: {type(error).__name__}: {error}")
            raise
    return None


def _say_why(context: Context, job_id: str, reason: str) -> None:
    """Writes on the job, once for each reason, why its merge fails; the merge is tried again at every sweep."""
    shortened = reason.replace("\0", "")[:1000]
    with context.begin() as work:
        job = locked(work, Job, job_id)
        if job.state == JobState.RUNNING and job.reason != shortened:
            job.reason = shortened
            tell(work, job_id, "merge_failed", context.clock(), reason=shortened)


def _run(context: Context, job_id: str) -> None:
    inputs = _close_for_merging(context, job_id)
    if inputs is None:
        return
    model, loss = _merged(context, inputs)
    contributions = drift.contributions(context, inputs.recipe, inputs.answers, inputs.operators, inputs.drift_seed)
    data = tensors.pack(model.tensors)
    state = tensors.pack(model.memory)
    updated, memory = context.blobs.put(data), context.blobs.put(state)
    metrics, unfit = _evaluated(context, inputs, data)
    now = context.clock()
    with context.begin() as work:
        job = locked(work, Job, job_id)
        row = work.get_one(Round, (job_id, inputs.number))
        if row.state != RoundState.MERGING:
            return
        job.reason = ""
        drift.keep(work, job, row, contributions, now)
        new_blobs = {updated: data, memory: state}
        blob_cleanup.keep_still(
            context, work, {name: partial(context.blobs.put, blob) for name, blob in new_blobs.items()}
        )
        work.move_now(
            row,
            RoundState.CLOSED,
            updated=updated,
            optimizer_state=memory,
            loss=loss,
            metrics=metrics,
            closed_at=now,
        )
        for task in work.session.scalars(_used(job_id, inputs.number)) if not inputs.spec.audited else ():
            work.move(task, TaskState.FINAL)
        if inputs.spec.verifier.sketched:
            trusted_runs.let_go(work, job_id, TrustedRun.round < blob_cleanup.oldest_kept(inputs.number))
        body = {"round": inputs.number, "loss": loss, "metrics": metrics, "parameters": updated}
        tell(work, job_id, "round_closed", now, **body)
        if unfit and job.state == JobState.RUNNING:
            work.move_now(job, JobState.PAUSED, reason=unfit)
            tell(work, job_id, "paused", now, reason=unfit)
        work.notify("plan", "audit", "aftermath")
    blob_cleanup.merged(context, job_id, inputs.number)


@dataclass(frozen=True)
class MergeWork:
    """The inputs of one merge, read in one transaction.

    `answers` are pairs (payload blob, task seed); `operators` has for each answer the operators that agreed on it.
    """

    number: int
    spec: JobSpec
    publication: Publication
    recipe: Recipe
    counters: tuple[str, ...]
    parameters: Digest
    memory: Digest
    answers: tuple[tuple[Digest, bytes], ...]
    operators: tuple[frozenset[str], ...]
    drift_seed: Hash


def _close_for_merging(context: Context, job_id: str) -> MergeWork | None:
    """Moves the round from OPEN to MERGING and fixes which tasks are used; tasks accepted later are paid, not used.

    Returns None if there is nothing to merge.
    """
    with context.begin() as work:
        job, row = locked(work, Job, job_id), jobs.latest_round(work, job_id)
        if row is None or row.state == RoundState.CLOSED or job.state != JobState.RUNNING:
            return None
        if row.state == RoundState.OPEN:
            if job.rewind_to is not None:
                return None
            accepted = select(Task).where(
                Task.job_id == job_id, Task.round == row.number, Task.state == TaskState.ACCEPTED
            )
            chosen = work.session.scalars(accepted).all()
            if len(chosen) < jobs.spec(job).tasks_needed:
                return None
            for task in chosen:
                task.used = True
            work.move_now(row, RoundState.MERGING)
            call_off(context, work, job_id, row.number)
        used = work.session.scalars(_used(job_id, row.number)).all()
        spec, facts = jobs.spec(job), facts_of(job)
        return MergeWork(
            number=row.number,
            spec=spec,
            publication=Publication.model_validate(job.publication),
            recipe=recipe(spec, job),
            counters=facts.counters,
            parameters=Digest(row.parameters),
            memory=Digest(row.optimizer_state),
            answers=tuple((Digest(task.payload or ""), bytes.fromhex(task.offer["seed"][2:])) for task in used),
            operators=drift.operators(work, used),
            drift_seed=drift.seed_of(job),
        )


def _used(job_id: str, number: int) -> Select[Task]:
    return select(Task).where(Task.job_id == job_id, Task.round == number, Task.used).order_by(Task.index)


def recipe(spec: JobSpec, job: Job) -> Recipe:
    chosen = spec.aggregator
    rule, settings = configured(chosen.name, chosen.settings, spec.tasks_needed, spec.tasks_per_round)
    return Recipe(layout_of(job), codec(spec.uplink.codec), rule, settings, spec.norm_bound, spec.tasks_per_round)


def _merged(context: Context, inputs: MergeWork) -> tuple[ModelState, float]:
    """Returns the model after the round, and the mean loss that its tasks measured before the update."""
    with ExitStack() as stack:
        answers = [MergedAnswer(stack.enter_context(context.blobs.mapped(blob)), seed) for blob, seed in inputs.answers]
        merged = merge(inputs.recipe, answers)
    before = ModelState(
        tensors.unpack(context.blobs.read(inputs.parameters)), tensors.unpack(context.blobs.read(inputs.memory))
    )
    schedule = inputs.spec.optimizer.schedule
    lr = rate(schedule.name, inputs.spec.optimizer.lr, inputs.number, inputs.spec.rounds, schedule.warmup)
    after = apply(inputs.recipe.layout, before, merged, move_of(inputs.spec), lr, inputs.counters)
    return after, float(merged["loss"])


def _evaluated(context: Context, inputs: MergeWork, parameters: bytes) -> tuple[dict[str, float], str]:
    """(metrics, why there are none): a document or data that cannot be evaluated is the job's fault, and stops it."""
    wanted = inputs.spec.evaluation
    due = wanted is not None and ((inputs.number + 1) % wanted.every == 0 or inputs.number + 1 == inputs.spec.rounds)
    if wanted is None or not due:
        return {}, ""
    manifest = parsed(context.blobs.read(inputs.publication.manifest))
    partition = manifest.named(wanted.partition)
    try:
        return context.modelling.evaluate(context.blobs, inputs.publication, parameters, manifest, partition), ""
    except (Refused, OutOfMemory, RunnerTimeout) as error:
        return {}, f"round {inputs.number} cannot be evaluated: {error}"[:1000]
