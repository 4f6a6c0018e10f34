"""Inspects payloads that have arrived, and stores them durably. `acceptance` pays for them."""

from dataclasses import dataclass
from typing import Final

from gradmarket.market.errors import Conflict, PayloadRefused
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import Diverged, Usable
from gradmarket.market.gradient.payload import leaves_of
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import Digest, Hash
from graphdoc.encoding import Bytes
from requester.blobs.disk import Incoming
from requester.context import Context
from requester.exchange.incoming_upload import IncomingReceipt, IncomingUpload
from requester.exchange.upload_grant import RevealedSketch, UploadGrant
from requester.meters import record_span
from requester.moves import blob_cleanup
from requester.store import unneeded

SKETCHED_OTHERWISE: Final = "its payload is not what its sketch was made of"


@dataclass(frozen=True)
class Unlike:
    """The payload is the committed one, but the replica's ballot was not made from it."""

    reason: str


Found = Usable | Diverged | PayloadRefused | Unlike


@dataclass(frozen=True)
class Delivery:
    """A payload that was uploaded and inspected; without `found` one that was paid before, which changes nothing."""

    want: UploadGrant
    incoming: Incoming
    digest: Digest
    found: Found | None

    @property
    def stored(self) -> bool:
        """Returns whether it is a blob now: a refused payload is none, and no caller can ask for it."""
        return isinstance(self.found, Usable | Diverged)

    def leaves(self) -> list[Hash]:
        """Returns the leaves of a well-formed payload (features.windows)."""
        if not self.want.layout.leaves:
            return []
        with self.incoming.mapped() as data:
            return leaves_of(self.want.layout, data, load_codec(self.want.spec.uplink.codec))


def build_incoming_upload(want: UploadGrant, incoming: Incoming) -> IncomingUpload:
    if want.spec.secure is not None:
        return IncomingReceipt(incoming, want.layout, load_codec(want.spec.uplink.codec), want.seed, want.receipt)
    return IncomingUpload(incoming, want.layout, load_codec(want.spec.uplink.codec), want.seed, want.spec.norm_bound)


def inspect_and_store_payload(context: Context, want: UploadGrant, arrival: IncomingUpload) -> Delivery:
    """Inspects the payload and stores it durably, unless it is refused or was paid before.

    Raises Conflict if the bytes are not the committed ones.
    """
    if arrival.incoming.digest != want.root:
        raise Conflict(f"the bytes' root is {arrival.incoming.digest}; committed was {want.root}")
    if want.paid:
        return Delivery(want, arrival.incoming, arrival.incoming.digest, None)
    delivery = Delivery(want, arrival.incoming, want.root, _inspect_payload(want, arrival))
    if delivery.stored:
        with record_span("keep payload"):
            _store_payload(context, want, arrival.incoming)
    return delivery


def _store_payload(context: Context, want: UploadGrant, incoming: Incoming) -> None:
    """Stores the payload. A holder's answer is released first: unless booked, it is never served and then dropped."""
    if not want.spec.repeatable:
        with context.begin() as work:
            unneeded.release_blobs(work, want.job, blob_cleanup.PAYLOAD, [incoming.digest], context.clock())
    context.blobs.store_blob(incoming)


def _inspect_payload(want: UploadGrant, arrival: IncomingUpload) -> Found:
    finding = arrival.found()
    if not want.spec.repeatable and isinstance(finding, Diverged):  # an honest holder's answer is within the bounds
        return PayloadRefused(f"it is not within the job's bounds: {finding.unmeasured}")
    if want.sketch is None:
        return finding
    if isinstance(finding, PayloadRefused):  # a malformed payload has no sketch
        return Unlike(finding.detail)
    with arrival.incoming.mapped() as data:
        return finding if _is_of(want, want.sketch, data) else Unlike(SKETCHED_OTHERWISE)


def _is_of(want: UploadGrant, revealed: RevealedSketch, data: Bytes) -> bool:
    sketch = sketch_packing.of_payload(want.layout, data, load_codec(want.spec.uplink.codec), want.seed, revealed.seed)
    return sketch_packing.pack_sketch(sketch, sketch) == revealed.numbers
