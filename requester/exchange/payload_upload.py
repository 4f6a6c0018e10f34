"""Takes uploaded payloads: bytes become a blob, and one transaction accepts the task and writes the earnings.

A crash in between loses nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final

from gradmarket.market.errors import Conflict, NotFound, PayloadRefused
from gradmarket.market.gradient.arrays import Bytes
from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.inspection import Diverged, Usable
from gradmarket.market.messages import Outcome
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import Digest, JobState, ReplicaState, TaskState
from gradmarket.market.wire import UploadAnswer, hash_of
from gradmarket.requester.blobs.disk import Incoming
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import receipts
from gradmarket.requester.exchange.incoming_upload import IncomingUpload
from gradmarket.requester.exchange.upload_grant import RevealedSketch, UploadGrant, granted
from gradmarket.requester.moves import audit_draws, blob_cleanup, judging, resume, verdicts
from gradmarket.requester.moves.ending import delivered, strike, work_off
from gradmarket.requester.store import earned_rows, in_hand, jobs
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.in_hand import TaskInHand
from gradmarket.requester.store.locks import locked_workers
from gradmarket.requester.store.retries import patiently
from gradmarket.requester.store.tables import Account, Job, Replica, Task
from gradmarket.requester.store.work import Work
from gradmarket.requester.tracing import span

SKETCHED_OTHERWISE: Final = "its payload is not what its sketch was made of"
DELIVERED: Final = (TaskState.ACCEPTED, TaskState.FINAL, TaskState.DIVERGED)
NEARLY: Final = 16
"""If fewer tasks than this are missing, the merge is notified: others may be accepting the last ones right now."""


@dataclass(frozen=True)
class Unlike:
    """The payload is the committed one, but the replica's ballot was not made from it."""

    reason: str


Found = Usable | Diverged | PayloadRefused | Unlike
Accounts = Mapping[tuple[str, str], Account]
"""Locked, by job and worker."""


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
        check(want, arrival.incoming.digest)
        return paid_before(context, want)
    (answer,) = book(context, [look(context, want, arrival)])
    return granted(answer)


def check(want: UploadGrant, root: Digest) -> None:
    """Raises Conflict if the bytes are not the committed ones."""
    if root != want.root:
        raise Conflict(f"the bytes' root is {root}; committed was {want.root}")


def look(context: Context, want: UploadGrant, arrival: IncomingUpload) -> Delivery:
    """Inspects the payload and stores it durably; raises Conflict as `check` does."""
    check(want, arrival.incoming.digest)
    finding = _look(want, arrival)
    with span("keep payload"):
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
        own = in_hand.own_replicas(reader, [want.replica])[want.replica]
        return _answer(own.replica, own.task, own.job, reader.get(Account, (own.job.id, want.worker)))


def _answer(replica: Replica, task: Task, job: Job, account: Account | None) -> UploadAnswer:
    return UploadAnswer(verdict=receipts.verdict(replica, task), voucher=receipts.voucher(account, job))


@patiently
def _book(context: Context, deliveries: Sequence[Delivery]) -> tuple[list[UploadAnswer | NotFound], list[Digest]]:
    """Returns the answers, and the payloads that came too late to be used."""
    with context.begin() as work:
        hands = in_hand.of_uploads(work, [delivery.want.task for delivery in deliveries])
        paid = [replica for hand in hands.values() for replica in hand.in_state(ReplicaState.AGREE)]
        _lock_newcomers(work, hands.values(), paid)
        accounts = earned_rows.lock(work, [(replica.job_id, replica.worker) for replica in paid])
        blob_cleanup.keep_still(context, work, {d.digest: partial(context.blobs.keep, d.incoming) for d in deliveries})
        outvoted = [replica for hand in hands.values() for replica in hand.in_state(ReplicaState.REJECTED)]
        answers = [_book_one(context, work, hands[d.want.task], accounts, d) for d in deliveries]
        for replica in outvoted:  # its rejection waited for the payload (outbox)
            verdicts.wake(work, replica)
        _ring_for_merges(work, [hand for hand in hands.values() if hand.task.state in DELIVERED])
        return answers, [d.digest for d in deliveries if hands[d.want.task].task.state == TaskState.FINAL]


def _lock_newcomers(work: Work, hands: Iterable[TaskInHand], paid: Iterable[Replica]) -> None:
    """Locks the workers of `paid` that delivered nothing before: workers are locked before their accounts."""
    workers = {address: worker for hand in hands for address, worker in hand.workers.items()}
    fresh = {replica.worker for replica in paid if workers[replica.worker].accepted_at is None}
    if fresh:
        locked_workers(work, fresh)


def _book_one(
    context: Context, work: Work, hand: TaskInHand, accounts: Accounts, delivery: Delivery
) -> UploadAnswer | NotFound:
    want, finding, now = delivery.want, delivery.found, context.clock()
    (own,) = (replica for replica in hand.replicas if replica.id == want.replica)
    if hand.task.state == TaskState.UPLOADING:
        if own.state != ReplicaState.AGREE:
            return NotFound("the replica is no longer asked")
        if isinstance(finding, PayloadRefused):
            _reject(context, work, hand, str(finding), now)
        elif isinstance(finding, Unlike):
            _reject_one(context, work, hand, own, finding.reason, now)
        else:
            reason = str(finding) if isinstance(finding, Diverged) else ""
            kept = {"payload": delivery.digest, "payload_bytes": delivery.incoming.length}
            _accept(context, work, hand, accounts, kept, reason, now)
    key = hand.job.id, own.worker
    return _answer(own, hand.task, hand.job, accounts.get(key) or work.get(Account, key))


def _ring_for_merges(work: Work, hands: Sequence[TaskInHand]) -> None:
    rounds = {(hand.job.id, hand.task.merge_round): hand.job for hand in hands}
    for (_, number), job in sorted(rounds.items(), key=itemgetter(0)):
        if jobs.lacks(work, job, number, NEARLY) < NEARLY:
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
    hand: TaskInHand,
    accounts: Accounts,
    kept: dict[str, Any],
    diverged: str,
    now: float,
) -> None:
    """Marks the task ACCEPTED or DIVERGED and pays every agreeing replica, with vouchers, in this one transaction."""
    task, job, agreeing = hand.task, hand.job, hand.in_state(ReplicaState.AGREE)
    state = TaskState.DIVERGED if diverged else TaskState.ACCEPTED
    work.move(task, state, due_at=None, reason=diverged, ended_at=now, **kept)
    for replica in agreeing:
        _pay(context, work, hand, accounts[job.id, replica.worker], replica, diverged, now)
    if not diverged:
        work_off(context, work, task, agreeing)
        theirs = ((hand.workers[replica.worker], accounts[job.id, replica.worker]) for replica in agreeing)
        delivered(theirs, now)
    paid = [replica.worker for replica in agreeing]
    tell(work, job.id, task.state, now, task=task.id, round=task.round, paid=paid)
    if diverged and audit_draws.may_be_a_lie(job):
        audit_draws.suspect(work, task, now)
    elif not diverged and jobs.spec(job).audited:
        audit_draws.draw(work, hand, now)
    elif not diverged and not jobs.may_merge(job, task, hand.round):
        work.move(task, TaskState.FINAL)
    if diverged and job.state == JobState.RUNNING:
        work.move_now(job, JobState.PAUSED, reason=f"{resume.DIVERGED} in round {task.round}: {diverged}")
        tell(work, job.id, "paused", now, reason=job.reason)


def _pay(
    context: Context, work: Work, hand: TaskInHand, account: Account, replica: Replica, diverged: str, now: float
) -> None:
    task = hand.task
    if diverged:
        own = replica.root
        verdicts.sign(context, work, task, replica, ReplicaState.DIVERGED, Outcome.DIVERGED, own, diverged)
    else:
        work.move(replica, ReplicaState.PAYABLE)
    earned_rows.earn(work, account, task, replica, hash_of(Digest(replica.root or "")), now)
    account.voucher_signature = context.voucher(hand.job, account)
    if account.reserved - account.earned <= 2 * task.offer.price:
        work.notify("settle")
    verdicts.wake(work, replica)


def _reject(context: Context, work: Work, hand: TaskInHand, reason: str, now: float) -> None:
    task = hand.task
    for replica in hand.in_state(ReplicaState.AGREE):
        verdicts.sign(context, work, task, replica, ReplicaState.REJECTED, Outcome.REJECTED, task.root, reason)
    judging.fail(context, work, hand, reason, now)


def _reject_one(context: Context, work: Work, hand: TaskInHand, liar: Replica, reason: str, now: float) -> None:
    """Rejects the uploader, whose ballot was not made from its payload, and asks the next agreeing replica.

    The others' ballots are their own. The verdict names the uploader's own root, so that a worker that is rejected
    wrongly holds a signed promise and its breach.
    """
    task = hand.task
    verdicts.sign(context, work, task, liar, ReplicaState.REJECTED, Outcome.REJECTED, liar.root, reason)
    strike(context, work, task, [liar], withheld=True)
    tell(work, task.job_id, "rejected", now, task=task.id, replica=liar.id, worker=liar.worker, reason=reason)
    left = hand.in_state(ReplicaState.AGREE)
    judging.ask_next(context, work, hand, left, "no agreeing worker brought the payload of its ballot", now)
