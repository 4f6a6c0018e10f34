"""Waits longer for an upload that comes steadily over a slow link: market.rules.stragglers says how long."""

from typing import Final

from gradmarket.market.rules import stragglers
from gradmarket.market.terms import TaskState
from requester.context import Context
from requester.exchange.commitments import TooLate
from requester.exchange.upload_grant import UploadGrant
from requester.store import in_hand
from requester.store.retries import retry_on_conflict

LOOKS: Final = 4
"""Looks at the deadline in the offer's upload seconds: each is a transaction, and a fast upload needs none."""


class UploadPace:
    """Measures one request's upload, and puts its deadline off where that is too short for its rate."""

    def __init__(self, context: Context, want: UploadGrant, start: int) -> None:
        self._context, self._want = context, want
        self._came, self._left = 0, want.length - start
        self._began = context.clock()
        self._look_at = self._began + want.upload_s / LOOKS

    def count_arrived_bytes(self, length: int) -> None:
        """So many further bytes are here. Called by the thread that writes them."""
        self._came, self._left = self._came + length, self._left - length
        now = self._context.clock()
        if now >= self._look_at and self._left > 0:
            put_off(self._context, self._want, self._left, self._came / (now - self._began))
            self._look_at = now + self._want.upload_s / LOOKS


@retry_on_conflict
def put_off(context: Context, want: UploadGrant, left: int, rate: float | None = None) -> None:
    """`left` bytes are still to come, at `rate` bytes a second; without it, at that since the payload was asked for.

    Raises TooLate where it is asked for no longer, and was not paid either: the rest would come in vain.
    """
    with context.begin() as work:
        own = in_hand.of_replicas(work, [want.worker], [want.replica]).get(want.replica)
        task = None if own is None else own.hand.task
        if task is None or task.state != TaskState.UPLOADING or task.uploader != want.replica:
            if want.paid:
                return
            raise TooLate("the payload is asked for no longer")
        now, last = context.clock(), task.due_most
        if task.due_at is not None and last is not None:
            since = now - stragglers.asked_at(last, want.upload_s)
            came = (want.length - left) / since if since > 0 else 0.0
            task.due_at = stragglers.put_off(
                task.due_at, last, want.upload_s, now, left, came if rate is None else rate
            )
