"""Takes the states that audits ask of workers: each is checked by its digest and its form, and kept for the auditor."""

from dataclasses import dataclass
from functools import partial

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.features.windows import StateRequest, StatesAsked
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.step import LocalStep
from gradmarket.market.terms import Address, Digest, JobId, ReplicaId
from gradmarket.runner import window_state
from requester.blobs.disk import Incoming
from requester.context import Context
from requester.features.windows import window_states
from requester.features.windows.window_draws import needs_state
from requester.moves import blob_cleanup
from requester.store import jobs
from requester.store.facts import layout_of
from requester.store.tables import Job, Task

NOT_ASKED = "no audit asks you for this state"


@dataclass(frozen=True)
class WantedState:
    """A state that a worker may bring: after `done` inner steps, under this digest."""

    worker: Address
    digest: Digest
    layout: Layout
    step: LocalStep
    done: int

    @property
    def most_bytes(self) -> int:
        return window_state.most_bytes(self.layout, self.step, self.done)


def list_asked_states(context: Context, worker: Address) -> StatesAsked:
    """Returns the states that audits ask this worker for."""
    now = context.clock()
    with context.reading() as reader:
        rows = [(row, reader.get_one(Task, row.task_id).job_id) for row in window_states.asked_of(reader, worker, now)]
    states = (
        StateRequest(
            replica=ReplicaId(row.replica),
            job=JobId(job),
            number=row.number,
            digest=row.digest,
            seconds=row.until - now,
        )
        for row, job in rows
    )
    return StatesAsked(states=tuple(states))


def load_wanted_state(context: Context, worker: Address, digest: Digest) -> WantedState:
    """Returns the state that the worker may bring under this digest. Raises NotFound where no audit asks for it."""
    with context.reading() as reader:
        row = window_states.find_requested_state(reader, worker, digest, context.clock())
        job = None if row is None else reader.get_one(Job, reader.get_one(Task, row.task_id).job_id)
        if row is None or job is None:
            raise NotFound(NOT_ASKED)
        step = jobs.load_spec(job).step
        if not isinstance(step, LocalStep) or step.window is None:
            raise NotFound(NOT_ASKED)
        return WantedState(worker, digest, layout_of(job), step, row.number * step.window)


def store_state(context: Context, want: WantedState, incoming: Incoming) -> None:
    """Keeps an uploaded state. Raises Refused for other bytes, NotFound where they come too late.

    The form is checked beside the digest: a worker that committed to the digest of another blob of this service would
    have that blob dropped with the states.
    """
    if incoming.digest != want.digest:
        raise Refused(f"the bytes are {incoming.digest}, not {want.digest}")
    with incoming.mapped() as data:
        window_state.check_packed_state(data, want.layout, want.step, want.done)
    context.blobs.store_blob(incoming)
    with context.begin() as work:
        blob_cleanup.lock_and_restore_blobs(context, work, {want.digest: partial(context.blobs.store_blob, incoming)})
        in_time = window_states.mark_brought(work, want.worker, want.digest, context.clock())
    if not in_time:
        blob_cleanup.drop_blob_if_unneeded(context, want.digest, partial(needs_state, digest=want.digest))
        raise NotFound(NOT_ASKED)
