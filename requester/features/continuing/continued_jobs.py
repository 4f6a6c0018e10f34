"""A job that goes on from another's end: from its parameters and its optimizer's memory, in its order of rows.

The rounds of a job, their schedule and their share of audits are under the digest that every offer and the escrow name.
So a job that is to run longer is a job of its own, which opens once the earlier one is finished.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import bindparam, func, select

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.features.continuing import CONTINUES, fill_fields, find_continued
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Continued
from gradmarket.market.rules.stopping import find_met_rule, is_overdue
from gradmarket.market.step import LocalStep
from gradmarket.market.terms import Digest, JobState
from graphdoc import tensors
from requester.blobs import Blobs
from requester.context import Context
from requester.moves.named_blobs import build_absent_refusal
from requester.store import jobs, tasks
from requester.store.facts import facts_of
from requester.store.tables import Job
from requester.store.work import RowReader

PARAMETERS: Final = "post its newest parameters as a model's"
OTHER_RULES: Final = "POST /v1/jobs with continue_from and other stop rules (extend takes those of the job)"
MOST_WAITING: Final = 64
"""Drafts of one token that may wait for the end of other jobs at once."""


def fill_posted(context: Context, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a posted job with its open fields filled from the job that it continues; other jobs as they came."""
    with context.reading() as reader:
        job = reader.get(Job, name) if (name := find_continued(body)) else None
        return dict(body) if job is None else fill_fields(body, jobs.load_spec(job), jobs.find_publication(job))


def check_continued(context: Context, spec: JobSpec, token: str) -> None:
    """Refuses a job that goes on from none, from another token's, or from one that ended before it was done."""
    if spec.continue_from is None:
        return
    with context.reading() as reader:
        job = _load_earlier(reader, spec.continue_from)
        if job.token != token:
            raise JobRefused(CONTINUES, f"another token posted job {job.id}: {PARAMETERS}")
        _check_going_on(reader, job, spec)
    if is_overdue(spec.ending, datetime.fromtimestamp(context.clock(), UTC)):
        raise JobRefused("stop", f"a date that ends the job has passed: {OTHER_RULES}")


def check_extendable(spec: JobSpec) -> None:
    """Refuses more rounds of a job with fields that a job which continues may not have. Raises JobRefused."""
    if spec.privacy is not None or spec.step.by_row:
        untold = "its rounds are private, and what they disclosed of a holder would not be counted in further ones"
        raise JobRefused(CONTINUES, f"{untold}: post a new job of all rounds")
    if isinstance(spec.step, LocalStep) and spec.step.control_variates:
        raise JobRefused(CONTINUES, "its holders keep their corrections by job: post a new job of all rounds")


def explain_draft(reader: RowReader, spec: JobSpec, token: str) -> str:
    """Returns the reason of a job that is a draft. Raises JobRefused where too many of the token's wait already."""
    if spec.continue_from is None:
        return "being published"
    if count_continuing_drafts(reader, token) >= MOST_WAITING:
        waiting = f"{MOST_WAITING} jobs of this token wait for the end of others"
        raise JobRefused(CONTINUES, f"{waiting}: cancel one, or post this one once one of them is published")
    earlier = _load_earlier(reader, spec.continue_from)
    ended = earlier.state == JobState.FINISHED
    return "being published" if ended else f"waits for the end of job {earlier.id}, which it continues"


def _check_going_on(reader: RowReader, job: Job, spec: JobSpec) -> None:
    before = jobs.load_spec(job)
    if job.state in (JobState.CANCELLED, JobState.FAILED):
        raise JobRefused(CONTINUES, f"job {job.id} is {job.state.value} and never finished: {PARAMETERS}")
    if before.optimizer.name != spec.optimizer.name:
        kept = f"job {job.id} keeps the state of {before.optimizer.name}"
        raise JobRefused(CONTINUES, f"{kept}: name that optimizer, or {PARAMETERS}")
    newest = jobs.latest_closed(reader, job.id)
    if met := find_met_rule(spec.stop, (newest and newest.metrics) or {}):
        raise JobRefused("stop", f"{met}: {OTHER_RULES}")


def _load_earlier(reader: RowReader, continued: Continued) -> Job:
    job = reader.get(Job, continued.job)
    if job is None:
        raise JobRefused(CONTINUES, f"there is no job {continued.job}")
    return job


def find_start(reader: RowReader, spec: JobSpec) -> JobSpec | None:
    """Returns the job with the state in which its first round starts; None while the earlier job goes on.

    Raises JobRefused.
    """
    if spec.continue_from is None:
        return spec
    job = _load_earlier(reader, spec.continue_from)
    _check_going_on(reader, job, spec)
    newest = jobs.latest_closed(reader, job.id)
    if job.state != JobState.FINISHED or (job.replay_from is not None and not (newest and newest.optimizer_state)):
        return None
    if newest is None or not newest.updated or not newest.optimizer_state:
        raise JobRefused(CONTINUES, f"the optimizer's state of job {job.id} is not stored: {PARAMETERS}")
    before, done = jobs.load_spec(job), newest.number + 1
    own_tasks = tasks.first_new_task(reader, job.id, done) if before.leaves_tasks else before.sizes.before(done)
    start = Continued(
        job=job.id,
        rounds=before.rounds_before + done,
        tasks=before.tasks_before + own_tasks,
        parameters=newest.updated,
        optimizer_state=newest.optimizer_state,
    )
    return spec.model_copy(update={CONTINUES: start})


def check_state_fits(reader: RowReader, blobs: Blobs, start: Continued, layout: Layout, fresh: Arrays) -> Digest:
    """Returns the optimizer's memory that the job starts with. Raises JobRefused for another model or optimizer.

    `fresh`: the memory with which such a job would begin anew.
    """
    for field, digest in (("parameters", start.parameters), ("optimizer_state", start.optimizer_state)):
        if digest is None or not blobs.has(digest):
            raise build_absent_refusal(f"{CONTINUES}.{field}", digest or Digest(""))
    entries = [(entry.name, entry.shape, entry.kind) for entry in facts_of(_load_earlier(reader, start)).layout]
    if entries != [(entry.name, entry.shape, entry.kind) for entry in layout.entries]:
        raise JobRefused("model", f"it has other tensors than that of job {start.job}: leave it out, or continue none")
    memory = Digest(start.optimizer_state or "")
    try:
        stored = tensors.unpack_tensors(blobs.read(memory))
    except Refused as error:
        raise JobRefused(CONTINUES, error.detail) from error
    if _list_shapes(stored) != _list_shapes(fresh):
        raise JobRefused(
            CONTINUES, f"the optimizer or downlink keeps another state than in job {start.job}: take those"
        )
    return memory


def _list_shapes(arrays: Arrays) -> set[tuple[str, tuple[int, ...], str]]:
    return {(name, array.shape, array.dtype.str) for name, array in arrays.items()}


def count_continuing_drafts(reader: RowReader, token: str) -> int:
    return reader.session.scalar(_CONTINUING_DRAFTS, {"token": token}) or 0


_CONTINUING_DRAFTS: Final = (
    select(func.count())
    .select_from(Job)
    .where(Job.state == JobState.DRAFT, Job.token == bindparam("token"), Job.continues.is_not(None))
)
