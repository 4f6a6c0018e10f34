"""Takes uploaded payloads: bytes become a blob, and one transaction accepts the task and writes the earnings.

A crash in between loses nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import select

from gradmarket.market.errors import Conflict, NotFound, PayloadRefused
from gradmarket.market.gradient.arrays import Bytes
from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.inspection import Diverged, Usable
from gradmarket.market.messages import Outcome
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import Digest, JobState, ReplicaState, RoundState, TaskState
from gradmarket.market.wire import UploadAnswer, hash_of
from gradmarket.requester.blobs.disk import Incoming
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import receipts
from gradmarket.requester.exchange.commitments import at_hand
from gradmarket.requester.exchange.incoming_upload import IncomingUpload
from gradmarket.requester.exchange.upload_grant import RevealedSketch, UploadGrant, granted
from gradmarket.requester.moves import audit_draws, blob_cleanup, judging, resume, verdicts
from gradmarket.requester.moves.ending import delivered, strike, work_off
from gradmarket.requester.store import earned_rows, jobs
from gradmarket.requester.store.among import among
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.locks import tasks_named
from gradmarket.requester.store.retries import patiently
from gradmarket.requester.store.tables import Job, Replica, Round, Task, Worker
from gradmarket.requester.store.work import RowReader, Work

SKETCHED_OTHERWISE: Final = "its payload is not what its sketch was made of"
DELIVERED: Final = (TaskState.ACCEPTED, TaskState.FINAL, TaskState.DIVERGED)
NEARLY: Final = 16
"""If fewer tasks than this are missing, the merge is notified: others may be accepting the last ones right now."""


@dataclass(frozen=True)
class Unlike:
    """The payload is the committed one, but the replica's ballot was not made from it."""

    reason: str


Found = Usable | Diverged | PayloadRefused | Unlike


@dataclass(frozen=True)
class Delivery:
    """A payload that was uploaded and inspected."""

    want: UploadGrant
    incoming: Incoming
    digest: Digest
    found: Found


def arriving(want: UploadGrant, incoming: Incoming) -> IncomingUpload:
    return IncomingUpload(incoming, want.layout, codec(want.spec.uplink.codec), want.seed, want.spec.norm_bound)


def take(context: Context, want: UploadGrant, arrival: IncomingUpload) -> UploadAnswer:
    """Stores the payload, pays for it and returns the answer; uploading the same bytes again changes nothing.

    Raises as `look` does, or NotFound.
    """
    if want.paid:
        check(want, arrival.root())
        return paid_before(context, want)
    (answer,) = book(context, [look(context, want, arrival)])
    return granted(answer)


def check(want: UploadGrant, root: Digest) -> None:
    """Raises Conflict if the bytes are not the committed ones."""
    if root != want.root:
        raise Conflict(f"the bytes' root is {root}; committed was {want.root}")


def look(context: Context, want: UploadGrant, arrival: IncomingUpload) -> Delivery:
    """Inspects the payload and stores it durably; raises Conflict as `check` does."""
    check(want, arrival.root())
    finding = _look(want, arrival)
    return Delivery(want, arrival.incoming, context.blobs.keep(arrival.incoming), finding)


def book(context: Context, deliveries: Sequence[Delivery]) -> list[UploadAnswer | NotFound]:
    """Accepts or rejects the payloads, all in one transaction; returns the answers in the same order.

    The answer is NotFound if the replica is no longer asked. A malformed payload is rejected for its whole quorum.
    """
    answers, late = _book(context, deliveries)
    for digest in late:
        blob_cleanup.payload(context, digest)
    return answers


def paid_before(context: Context, want: UploadGrant) -> UploadAnswer:
    with context.reading() as reader:
        at_hand(reader, [want.replica])
        return _told(reader, want)


def _told(reader: RowReader, want: UploadGrant) -> UploadAnswer:
    replica, task = reader.get_one(Replica, want.replica), reader.get_one(Task, want.task)
    voucher = receipts.voucher(reader, task.job_id, want.worker)
    return UploadAnswer(verdict=receipts.verdict(replica, task), voucher=voucher)


@patiently
def _book(context: Context, deliveries: Sequence[Delivery]) -> tuple[list[UploadAnswer | NotFound], list[Digest]]:
    """Returns the answers, and the payloads that came too late to be used."""
    with context.begin() as work:
        tasks = {task.id: task for task in tasks_named(work, [delivery.want.task for delivery in deliveries])}
        quorums, outvoted = _quorums(work, tasks)
        earned_rows.lock(work, [(replica.job_id, replica.worker) for quorum in quorums.values() for replica in quorum])
        blob_cleanup.keep_still(context, work, {d.digest: partial(context.blobs.keep, d.incoming) for d in deliveries})
        answers = [_book_one(context, work, tasks[d.want.task], quorums[d.want.task], d) for d in deliveries]
        for replica in outvoted:  # its rejection waited for the payload (outbox)
            verdicts.wake(work, replica)
        _ring_for_merges(work, [task for task in tasks.values() if task.state in DELIVERED])
        return answers, [d.digest for d in deliveries if tasks[d.want.task].state == TaskState.FINAL]


def _quorums(reader: RowReader, tasks: Collection[str]) -> tuple[dict[str, list[Replica]], list[Replica]]:
    """Returns each task's quorum ordered by worker, and the outvoted replicas; loads the workers' rows too."""
    quorums: dict[str, list[Replica]] = {task: [] for task in tasks}
    outvoted: list[Replica] = []
    for replica, _worker in reader.session.execute(_JUDGED, {"tasks": list(tasks)}):
        (quorums[replica.task_id] if replica.state == ReplicaState.AGREE else outvoted).append(replica)
    return quorums, outvoted


_JUDGED: Final = (
    select(Replica, Worker)
    .join(Worker, Worker.address == Replica.worker)
    .where(among(Replica.task_id, "tasks"), Replica.state.in_([ReplicaState.AGREE, ReplicaState.REJECTED]))
    .order_by(Replica.worker)
)


def _book_one(
    context: Context, work: Work, task: Task, agreeing: list[Replica], delivery: Delivery
) -> UploadAnswer | NotFound:
    want, finding, now = delivery.want, delivery.found, context.clock()
    if task.state == TaskState.UPLOADING:
        if want.replica not in {replica.id for replica in agreeing}:
            return NotFound("the replica is no longer asked")
        if isinstance(finding, PayloadRefused):
            _reject(context, work, task, agreeing, str(finding), now)
        elif isinstance(finding, Unlike):
            _reject_one(context, work, task, agreeing, want, finding.reason, now)
        else:
            reason = str(finding) if isinstance(finding, Diverged) else ""
            kept = {"payload": delivery.digest, "payload_bytes": delivery.incoming.length}
            _accept(context, work, task, agreeing, kept, reason, now)
    return _told(work, want)


def _ring_for_merges(work: Work, tasks: Sequence[Task]) -> None:
    for job_id, number in sorted({(task.job_id, task.round) for task in tasks}):
        if jobs.lacks(work, work.get_one(Job, job_id), number, NEARLY) < NEARLY:
            work.notify("aggregate")


def _look(want: UploadGrant, arrival: IncomingUpload) -> Found:
    finding = arrival.found()
    if want.sketch is None:
        return finding
    if isinstance(finding, PayloadRefused):  # a malformed payload has no sketch
        return Unlike(finding.detail)
    with arrival.incoming.mapped() as data:
        return finding if _is_of(want, want.sketch, data) else Unlike(SKETCHED_OTHERWISE)


def _is_of(want: UploadGrant, revealed: RevealedSketch, data: Bytes) -> bool:
    sketch = sketch_packing.of_payload(want.layout, data, codec(want.spec.uplink.codec), want.seed, revealed.seed)
    return sketch_packing.pack(sketch, sketch) == revealed.numbers


def _accept(
    context: Context,
    work: Work,
    task: Task,
    agreeing: list[Replica],
    kept: dict[str, Any],
    diverged: str,
    now: float,
) -> None:
    """Marks the task ACCEPTED or DIVERGED and pays every agreeing replica, with vouchers, in this one transaction."""
    job = work.get_one(Job, task.job_id)
    state = TaskState.DIVERGED if diverged else TaskState.ACCEPTED
    work.move(task, state, due_at=None, reason=diverged, ended_at=now, **kept)
    for replica in agreeing:
        if diverged:
            own = replica.root
            verdicts.sign(context, work, task, replica, ReplicaState.DIVERGED, Outcome.DIVERGED, own, diverged)
        else:
            work.move(replica, ReplicaState.PAYABLE)
        account = earned_rows.earn(work, task, replica, hash_of(Digest(replica.root or "")), now)
        account.voucher_signature = context.voucher(job, account)
        if account.reserved - account.earned <= 2 * task.offer["price"]:
            work.notify("settle")
        verdicts.wake(work, replica)
    if not diverged:
        work_off(context, work, task, agreeing)
        delivered(work, agreeing, now)
    paid = [replica.worker for replica in agreeing]
    tell(work, job.id, task.state, now, task=task.id, round=task.round, paid=paid)
    if diverged and audit_draws.may_be_a_lie(job):
        audit_draws.suspect(work, task, now)
    elif not diverged and jobs.spec(job).audited:
        audit_draws.draw(work, job, task, now)
    elif not diverged and work.get_one(Round, (job.id, task.round)).state != RoundState.OPEN:
        work.move(task, TaskState.FINAL)
    if diverged and job.state == JobState.RUNNING:
        work.move_now(job, JobState.PAUSED, reason=f"{resume.DIVERGED} in round {task.round}: {diverged}")
        tell(work, job.id, "paused", now, reason=job.reason)


def _reject(context: Context, work: Work, task: Task, agreeing: list[Replica], reason: str, now: float) -> None:
    for replica in agreeing:
        verdicts.sign(context, work, task, replica, ReplicaState.REJECTED, Outcome.REJECTED, task.root, reason)
    judging.fail(context, work, task, reason, now)


def _reject_one(
    context: Context, work: Work, task: Task, agreeing: list[Replica], want: UploadGrant, reason: str, now: float
) -> None:
    """Rejects the uploader, whose ballot was not made from its payload, and asks the next agreeing replica.

    The others' ballots are their own. The verdict names the uploader's own root, so that a worker that is rejected
    wrongly holds a signed promise and its breach.
    """
    (liar,) = (replica for replica in agreeing if replica.id == want.replica)
    verdicts.sign(context, work, task, liar, ReplicaState.REJECTED, Outcome.REJECTED, liar.root, reason)
    strike(context, work, task, [liar], withheld=True)
    tell(work, task.job_id, "rejected", now, task=task.id, replica=liar.id, worker=liar.worker, reason=reason)
    left = [replica for replica in agreeing if replica is not liar]
    judging.ask_next(context, work, task, left, "no agreeing worker brought the payload of its ballot", now)
