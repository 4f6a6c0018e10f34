"""Has an audit repeat two windows of its task in place of the whole, and asks the worker for the states before them."""

from collections.abc import Sequence

from gradmarket.market.rules import task_windows
from gradmarket.market.terms import AuditState, Digest, Hash
from gradmarket.market.wire.poll import digest_of, hash_of
from requester.context import Context
from requester.moves import blob_cleanup
from requester.moves.ending import strike
from requester.store import unneeded, window_states
from requester.store.in_hand import TaskInHand
from requester.store.tables import Audit, Replica, Task
from requester.store.work import Work


def draw(work: Work, hand: TaskInHand, audit: Audit, link: Hash, leaves: Sequence[Hash], now: float) -> None:
    """Draws the window that the audit repeats, by the audit's own link; called in the transaction that accepts."""
    task = hand.task
    (uploader,) = (replica for replica in hand.replicas if replica.id == task.uploader)
    audit.window = task_windows.drawn(link, task.offer_digest, hash_of(Digest(task.root or "")), len(leaves))
    audit.leaves = b"".join(leaves)
    needed = task_windows.needed(audit.window, len(leaves))
    until = now + task.offer.lease_seconds + task.offer.upload_seconds
    window_states.ask(work, uploader, [(number, digest_of(leaves[number - 1])) for number in needed], until)


def whole(context: Context, work: Work, task: Task, audit: Audit) -> None:
    """Has the audit repeat the whole task; a worker that has not brought what was asked has a strike."""
    silent = [work.get_one(Replica, replica) for replica in window_states.missing(work, task.id)]
    strike(context, work, task, silent, withheld=True)
    audit.window = None
    over(work, task, audit, context.clock())


def again(work: Work, task: Task, audit: Audit, reason: str, now: float) -> None:
    """Has the whole task repeated, whatever two windows of it showed or are showing just now.

    An answer that is under way has the number of a run that counts no more.
    """
    over(work, task, audit, now)
    fresh = {"window": None, "reason": reason, "runs": audit.runs + 1, "claimed_until": None, "ended_at": None}
    if audit.state == AuditState.DUE:
        for name, value in fresh.items():
            setattr(audit, name, value)
    else:
        work.move_now(audit, AuditState.DUE, **fresh)


def over(work: Work, task: Task, audit: Audit, now: float) -> None:
    """Lets go of the states that were brought for the audit; blob_cleanup.drop_unneeded drops them."""
    if audit.leaves is not None:
        audit.leaves = None
        unneeded.add(work, task.job_id, blob_cleanup.STATE, window_states.end(work, task.id), now)
