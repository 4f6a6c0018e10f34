"""Accepts or rejects delivered payloads, and pays for them, in the transaction that takes them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from gradmarket.market.errors import Conflict, MarketError, NotFound, PayloadRefused
from gradmarket.market.gradient.inspection import Diverged, Usable
from gradmarket.market.messages import Outcome
from gradmarket.market.rules.lifecycle import DIVERGED
from gradmarket.market.terms import Address, Digest, JobState, ReplicaState, TaskState
from gradmarket.market.wire.poll import hash_of
from requester.context import Context
from requester.exchange.payload_upload import Delivery, Unlike
from requester.moves import blob_cleanup, judging, resume, verdicts
from requester.moves.ending import record_accepted_answers, strike_replicas, work_off
from requester.store import earned_rows, jobs, merges
from requester.store.in_hand import ReplicaInHand, TaskInHand
from requester.store.review import is_reviewed, review_of
from requester.store.tables import Account, Replica
from requester.store.work import Work, record_event

DELIVERED: Final = (TaskState.ACCEPTED, TaskState.FINAL, TaskState.DIVERGED)
NEARLY: Final = 16
"""If fewer tasks than this are missing, the merge is notified: others may be accepting the last ones right now.

On SQLite, where writers take turns, the transaction that accepts the last one notifies.
"""


Accounts = Mapping[tuple[str, str], Account]
"""Locked, by job and worker."""


def list_payees(deliveries: Sequence[Delivery], own: Mapping[str, ReplicaInHand]) -> list[Replica]:
    """Returns the replicas that these payloads may pay: those that agree, and those that answer with the payload."""
    paid = dict[str, Replica]()
    for delivery in deliveries:
        if (known := own.get(delivery.want.replica)) is not None:
            alone = [known.replica] if delivery.want.answer is not None else []
            paid |= {replica.id: replica for replica in (*known.hand.in_state(ReplicaState.AGREE), *alone)}
    return list(paid.values())


def list_newcomers(replicas: Iterable[Replica], own: Mapping[str, ReplicaInHand]) -> set[Address]:
    """Returns the replicas' workers that delivered nothing before; their rows change when they are paid."""
    workers = {address: worker for one in own.values() for address, worker in one.hand.workers.items()}
    return {replica.worker for replica in replicas if workers[replica.worker].accepted_at is None}


def lock_payee_accounts(work: Work, replicas: Sequence[Replica]) -> Accounts:
    """Locks the accounts that change when these replicas are paid. The caller has locked tasks and workers before."""
    return earned_rows.lock_accounts(work, [(replica.job_id, replica.worker) for replica in replicas])


def record_deliveries(
    context: Context,
    work: Work,
    own: Mapping[str, ReplicaInHand],
    accounts: Accounts,
    deliveries: Sequence[Delivery],
) -> dict[str, MarketError]:
    """Accepts or rejects the payloads. Returns an error for each that is not requested, or not the revealed one.

    A malformed payload is rejected for its whole quorum.
    """
    kept = {d.digest: partial(context.blobs.store_blob, d.incoming) for d in deliveries if d.stored}
    if kept:
        blob_cleanup.lock_and_restore_blobs(context, work, kept)
    hands = {own[d.want.replica].hand.task.id: own[d.want.replica].hand for d in deliveries if d.want.replica in own}
    outvoted = [replica for hand in hands.values() for replica in hand.in_state(ReplicaState.REJECTED)]
    asked = [hand for hand in hands.values() if hand.task.state == TaskState.UPLOADING]
    refused = {
        d.want.replica: error for d in deliveries if (error := _record_delivery(context, work, own, accounts, d))
    }
    for replica in outvoted:  # its rejection waited for the payload (outbox)
        verdicts.notify_worker(work, replica)
    settled = [hand for hand in asked if hand.task.state in DELIVERED]
    review_of(work).record_settled_answers(work, settled, context.clock())
    for hand in hands.values():
        if hand.task.state in DELIVERED:
            work.gather(_notify_nearly_complete_merges, hand)
    return refused


def list_unused_payloads(deliveries: Iterable[Delivery], own: Mapping[str, ReplicaInHand]) -> list[Digest]:
    """Returns the stored payloads that nothing refers to: they came too late, or were not requested."""
    tasks = {replica: known.hand.task for replica, known in own.items()}
    used = {(replica, task.payload) for replica, task in tasks.items() if task.state != TaskState.FINAL}
    return [d.digest for d in deliveries if d.stored and (d.want.replica, d.digest) not in used]


def _record_delivery(
    context: Context, work: Work, own: Mapping[str, ReplicaInHand], accounts: Accounts, delivery: Delivery
) -> MarketError | None:
    known, finding, now = own.get(delivery.want.replica), delivery.found, context.clock()
    if known is None:
        return NotFound("the replica is no longer asked")
    hand, task, replica = known.hand, known.hand.task, known.replica
    reject = ReplicaState.REJECTED, Outcome.REJECTED
    if finding is None or task.state != TaskState.UPLOADING:
        return None
    if replica.state != ReplicaState.AGREE:
        return NotFound("the replica is no longer asked")
    if replica.root != delivery.want.root:  # granted for an answer that came with it, and another one stands
        return Conflict(f"another root than the payload's was revealed: {replica.root}")
    if isinstance(finding, PayloadRefused):
        for one in hand.in_state(ReplicaState.AGREE):
            verdicts.sign_verdict(context, work, task, one, *reject, task.root, str(finding))
        judging.fail_task(context, work, hand, str(finding), now)
    elif isinstance(finding, Unlike):
        # its ballot does not match its payload; the others' ballots are their own, so the next of them is asked. The
        # verdict names its own root: a worker that is rejected wrongly holds a signed promise and its breach
        verdicts.sign_verdict(context, work, task, replica, *reject, replica.root, finding.reason)
        strike_replicas(context, work, task, [replica], withheld=True)
        about = {"task": task.id, "replica": replica.id, "worker": replica.worker, "reason": finding.reason}
        record_event(work, task.job_id, "rejected", now, **about)
        nobody, left = "no agreeing worker brought the payload of its ballot", hand.in_state(ReplicaState.AGREE)
        judging.request_next_payload(context, work, hand, left, nobody, now)
    else:
        reason = str(finding) if isinstance(finding, Diverged) else ""
        accept_task(context, work, hand, accounts, delivery, reason, now)
    return None


def _notify_nearly_complete_merges(work: Work, hands: Sequence[TaskInHand]) -> None:
    rounds = {(hand.job.id, hand.task.merge_round): hand.job for hand in hands}
    nearly = NEARLY if work.shared else 1
    for (_, number), job in sorted(rounds.items(), key=itemgetter(0)):
        if merges.count_missing_answers(work, job, number, nearly) < nearly:
            work.notify("aggregate")


def accept_task(
    context: Context,
    work: Work,
    hand: TaskInHand,
    accounts: Accounts,
    delivery: Delivery,
    diverged: str,
    now: float,
) -> None:
    """Marks the task ACCEPTED or DIVERGED and pays every agreeing replica, with vouchers, in this one transaction."""
    task, job, agreeing = hand.task, hand.job, hand.in_state(ReplicaState.AGREE)
    state = TaskState.DIVERGED if diverged else TaskState.ACCEPTED
    kept: dict[str, object] = {"payload": delivery.digest, "payload_bytes": delivery.incoming.length}
    if isinstance(delivery.found, Usable) and is_reviewed(job):
        kept["norm"] = delivery.found.norm
    work.move(task, state, due_at=None, reason=diverged, ended_at=now, **kept)
    for replica in agreeing:
        account, root = accounts[job.id, replica.worker], replica.root
        if diverged:
            diverges = ReplicaState.DIVERGED, Outcome.DIVERGED
            verdicts.sign_verdict(context, work, task, replica, *diverges, root, diverged)
        else:
            work.move(replica, ReplicaState.PAYABLE)
        waits = review_of(work).must_pay_wait(work, job, replica)
        earned_rows.record_earning(work, account, task, replica, hash_of(Digest(root or "")), now, waits=waits)
        if account.promised:
            account.voucher_signature = context.voucher(job, account)
        if account.reserved - account.earned <= 2 * task.offer.price:
            work.notify("settle")
        verdicts.notify_worker(work, replica)
    if not diverged:
        work_off(context, work, task, agreeing)
        theirs = ((hand.workers[replica.worker], accounts[job.id, replica.worker]) for replica in agreeing)
        record_accepted_answers(theirs, now)
    paid = [replica.worker for replica in agreeing]
    record_event(work, job.id, task.state, now, task=task.id, round=task.round, paid=paid)
    review = review_of(work)
    reviewed = not diverged and review.take_answer(work, hand, delivery.leaves, now)
    if not diverged and not reviewed and not jobs.may_merge(job, task, hand.round):
        work.move(task, TaskState.FINAL)
    if not diverged or (not review.may_be_a_lie(job, task) and resume.ask_others(context, work, hand, now)):
        return
    review.check_divergence(work, job, task, now)
    if job.state == JobState.RUNNING:
        work.set_state_now(job, JobState.PAUSED, reason=f"{DIVERGED} in round {task.round}: {diverged}")
        record_event(work, job.id, "paused", now, reason=job.reason)
