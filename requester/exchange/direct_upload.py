"""Payloads uploaded directly to the blob store: gives out upload URLs, and checks the uploads by the same rules."""

from contextlib import ExitStack

from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.payload_layout import payload_bytes
from gradmarket.requester.context import Context
from gradmarket.requester.exchange.payload_upload import Delivery, arriving, look
from gradmarket.requester.exchange.upload_grant import UploadGrant
from gradmarket.requester.store import jobs
from gradmarket.requester.store.facts import layout_of
from gradmarket.requester.store.tables import Job, Replica, Task
from gradmarket.requester.store.work import RowReader


def door(context: Context, reader: RowReader, replica: Replica, task: Task, seconds: float) -> str | None:
    """Returns a URL that takes the replica's payload for `seconds`; None if it is uploaded to the service itself."""
    if not context.blobs.reached_past_us:
        return None
    job = reader.get_one(Job, task.job_id)
    length = payload_bytes(layout_of(job), codec(jobs.spec(job).uplink.codec))
    return context.blobs.door(_name(replica.id, replica.fence), length, seconds)


def fetch(context: Context, want: UploadGrant, fence: int, files: ExitStack) -> Delivery | None:
    """Takes what was uploaded to the replica's URL; None if it was paid before.

    Raises NotFound or Conflict if that is not the payload.
    """
    if want.paid:
        return None
    arrival = arriving(want, files.enter_context(context.blobs.left(_name(want.replica, fence), want.length)))
    return look(context, want, arrival)


def _name(replica: str, fence: int) -> str:
    return f"{replica} {fence}"
