"""Payloads uploaded directly to the blob store: gives out upload URLs, and checks the uploads by the same rules."""

from contextlib import ExitStack
from typing import Final

from gradmarket.market.errors import MarketError
from gradmarket.market.wire.framing import PartAddress
from requester.context import Context
from requester.exchange import upload_grant
from requester.exchange.payload_upload import Delivery, build_incoming_upload, inspect_and_store_payload
from requester.exchange.upload_grant import UploadClaim, UploadGrant, put_off
from requester.store import jobs
from requester.store.facts import layout_of
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader

ADDRESSES: Final = 4
"""Addresses of parts that are given out at a time: a slow sender asks again before its deadline is over."""


def find_upload_url(context: Context, reader: RowReader, replica: Replica, task: Task, seconds: float) -> str | None:
    """Returns a URL that takes the replica's payload for `seconds`; None if it is uploaded to the service itself."""
    if not context.blobs.reached_past_us:
        return None
    job = reader.get_one(Job, task.job_id)
    length = upload_grant.length_of(jobs.load_spec(job), layout_of(job))
    return context.blobs.door(_build_upload_name(replica.id, replica.fence), length, seconds)


def in_parts(context: Context) -> bool:
    """Returns whether a payload without an address of its own has one for each part."""
    return context.blobs.reached_past_us


def missing_parts(context: Context, claim: UploadClaim) -> list[PartAddress]:
    """Returns the addresses of parts that have not come, and puts off the deadline where parts come steadily.

    Raises NotFound, TooLate or Conflict where the payload is not wanted, or where uploads come through the service.
    """
    (want,) = upload_grant.find_grants(context, [claim])
    if isinstance(want, MarketError):
        raise want
    missing = context.blobs.missing_parts(_build_upload_name(claim.replica, claim.fence), want.length)
    put_off(context, want, sum(part.length for part in missing))
    return missing[:ADDRESSES]


def fetch_direct_upload(context: Context, want: UploadGrant, fence: int, files: ExitStack) -> Delivery | None:
    """Takes the upload at the replica's URL; None if it was paid before.

    Raises NotFound or Conflict if it is not the payload.
    """
    if want.paid:
        return None
    arrival = build_incoming_upload(
        want, files.enter_context(context.blobs.left(_build_upload_name(want.replica, fence), want.length))
    )
    return inspect_and_store_payload(context, want, arrival)


def _build_upload_name(replica: str, fence: int) -> str:
    return f"{replica} {fence}"
