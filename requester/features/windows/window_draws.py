"""Has an audit repeat two windows of its task in place of the whole, and asks the worker for the states before them."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import ColumnElement

from gradmarket.market.features import windows as task_windows
from gradmarket.market.gradient.payload_layout import LEAF_BYTES
from gradmarket.market.terms import Digest, Hash
from gradmarket.market.wire.audit_messages import WindowTask
from gradmarket.market.wire.poll import digest_of, hash_of
from requester.context import Context
from requester.features.audits.audit_kind import AuditKind
from requester.features.audits.audit_tables import Audit
from requester.features.windows import window_states
from requester.moves import blob_cleanup
from requester.moves.ending import strike_replicas
from requester.store import unneeded
from requester.store.in_hand import TaskInHand
from requester.store.tables import Replica, Task
from requester.store.work import RowReader, Work

STATE: Final = "state"
"""The kind under which a job releases a blob that is such a state."""


def audit_whole_task(context: Context, work: Work, task: Task, audit: Audit) -> None:
    """Has the audit repeat the whole task; a worker that has not brought a requested state gets a strike."""
    silent = [work.get_one(Replica, replica) for replica in window_states.list_silent_replicas(work, task.id)]
    strike_replicas(context, work, task, silent, withheld=True)
    audit.window = None
    release_states(work, task, audit, context.clock())


def build_window_task(audit: Audit) -> WindowTask | None:
    """Returns the window to repeat and the task's leaves, without the one to find; None for the whole task."""
    if audit.window is None or audit.leaves is None:
        return None
    cut = range(0, len(audit.leaves), LEAF_BYTES)
    leaves = [digest_of(Hash(audit.leaves[start : start + LEAF_BYTES])) for start in cut]
    published = (None if number == audit.window else leaf for number, leaf in enumerate(leaves))
    return WindowTask(window=audit.window, leaves=tuple(published))


def release_states(work: Work, task: Task, audit: Audit, now: float) -> bool:
    """Releases the states that were brought for the audit; blob_cleanup.drop_unneeded drops them.

    Returns whether there were any to ask for.
    """
    if audit.leaves is None:
        return False
    audit.leaves = None
    unneeded.release_blobs(work, task.job_id, STATE, window_states.delete_state_requests(work, task.id), now)
    return True


def needs_state(reader: RowReader, digest: str) -> bool:
    """Returns whether an audit that is not over has this state, or the blob is needed as an answer too."""
    return window_states.is_state_needed(reader, digest) or blob_cleanup.needs_payload(reader, digest)


class WindowAudits(AuditKind):
    """Audits that repeat two windows of a task in place of the whole."""

    def build_awaited(self, now: float) -> Mapping[str, ColumnElement[bool]]:
        return {"states that their workers are to bring": window_states.build_awaited_condition(now)}

    def narrow_audit(
        self, work: Work, hand: TaskInHand, audit: Audit, link: Hash, leaves: Sequence[Hash], now: float
    ) -> None:
        """Draws the window that the audit repeats, by the audit's own link."""
        task = hand.task
        (uploader,) = (replica for replica in hand.replicas if replica.id == task.uploader)
        audit.window = task_windows.draw_audited_window(
            link, task.offer_digest, hash_of(Digest(task.root or "")), len(leaves)
        )
        audit.leaves = b"".join(leaves)
        needed = task_windows.list_needed_windows(audit.window, len(leaves))
        until = now + task.offer.lease_seconds + task.offer.upload_seconds
        window_states.request_states(
            work, uploader, [(number, digest_of(leaves[number - 1])) for number in needed], until
        )

    def describe_claim(self, context: Context, work: Work, task: Task, audit: Audit) -> Mapping[str, object]:
        if audit.window is not None and window_states.list_silent_replicas(work, task.id):
            audit_whole_task(context, work, task, audit)
        return {"window": build_window_task(audit)}

    def order_another_run(self, context: Context, work: Work, task: Task, audit: Audit) -> None:
        if audit.window is not None:  # the second run repeats the whole task, and a conviction needs it
            audit_whole_task(context, work, task, audit)

    def release_blobs(self, work: Work, task: Task, audit: Audit, now: float) -> bool:
        return release_states(work, task, audit, now)
