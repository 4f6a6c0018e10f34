"""Has an audit repeat two windows of its task in place of the whole, and asks the worker for the states before them."""

from collections.abc import Sequence

from gradmarket.market.rules import task_windows
from gradmarket.market.terms import AuditState, Digest, Hash
from gradmarket.market.wire.poll import digest_of, hash_of
from requester.context import Context
from requester.moves import blob_cleanup
from requester.moves.ending import strike_replicas
from requester.store import unneeded, window_states
from requester.store.in_hand import TaskInHand
from requester.store.tables import Audit, Replica, Task
from requester.store.work import Work


def draw_audit_window(
    work: Work, hand: TaskInHand, audit: Audit, link: Hash, leaves: Sequence[Hash], now: float
) -> None:
    """Draws the window that the audit repeats, by the audit's own link; called in the transaction that accepts."""
    task = hand.task
    (uploader,) = (replica for replica in hand.replicas if replica.id == task.uploader)
    audit.window = task_windows.draw_audited_window(
        link, task.offer_digest, hash_of(Digest(task.root or "")), len(leaves)
    )
    audit.leaves = b"".join(leaves)
    needed = task_windows.list_needed_windows(audit.window, len(leaves))
    until = now + task.offer.lease_seconds + task.offer.upload_seconds
    window_states.request_states(work, uploader, [(number, digest_of(leaves[number - 1])) for number in needed], until)


def audit_whole_task(context: Context, work: Work, task: Task, audit: Audit) -> None:
    """Has the audit repeat the whole task; a worker that has not brought what was asked has a strike."""
    silent = [work.get_one(Replica, replica) for replica in window_states.list_silent_replicas(work, task.id)]
    strike_replicas(context, work, task, silent, withheld=True)
    audit.window = None
    release_states(work, task, audit, context.clock())


def repeat_whole_task(work: Work, task: Task, audit: Audit, reason: str, now: float) -> None:
    """Has the whole task repeated, whatever two windows of it showed or are showing just now.

    An answer that is under way has the number of a run that counts no more.
    """
    release_states(work, task, audit, now)
    fresh = {"window": None, "reason": reason, "runs": audit.runs + 1, "claimed_until": None, "ended_at": None}
    if audit.state == AuditState.DUE:
        for name, value in fresh.items():
            setattr(audit, name, value)
    else:
        work.set_state_now(audit, AuditState.DUE, **fresh)


def release_states(work: Work, task: Task, audit: Audit, now: float) -> None:
    """Lets go of the states that were brought for the audit; blob_cleanup.drop_unneeded drops them."""
    if audit.leaves is not None:
        audit.leaves = None
        unneeded.release_blobs(
            work, task.job_id, blob_cleanup.STATE, window_states.delete_state_requests(work, task.id), now
        )
