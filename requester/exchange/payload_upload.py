"""Inspects payloads while and after they arrive, and stores them durably. `acceptance` pays for them.

Where workers reach the blob store past the service, it gives out addresses of the store, and inspects the bytes there
by the same rules.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from gradmarket.market.errors import Conflict, MarketError, PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import Codec, load_codec
from gradmarket.market.gradient.inspection import Diverged, Inspection, Usable
from gradmarket.market.gradient.payload import leaves_of, shard_place, unpack_shard, weight_of
from gradmarket.market.gradient.payload_layout import Layout, payload_bytes
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import Digest, Hash
from gradmarket.market.wire import framing
from gradmarket.market.wire.framing import PartAddress
from graphdoc.encoding import Bytes
from requester.blobs.disk import Incoming
from requester.context import Context
from requester.exchange.upload_grant import (
    UploadClaim,
    UploadGrant,
    find_grants,
    length_of,
    put_off,
)
from requester.meters import record_span
from requester.moves import blob_cleanup
from requester.store import jobs, unneeded
from requester.store.facts import layout_of
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader

SKETCHED_OTHERWISE: Final = "its payload is not what its sketch was made of"
ADDRESSES: Final = 4
"""Addresses of parts that are given out at a time: a slow sender asks again before its deadline is over."""


class IncomingUpload:
    """An upload that is written to `incoming`. A continued one is inspected at its end, once in all.

    Shards that the last bytes complete are inspected by `found`: if the bytes are few, they arrive on the event loop.
    """

    def __init__(self, incoming: Incoming, layout: Layout, codec: Codec, seed: bytes, norm_bound: float) -> None:
        self.incoming = incoming
        self._layout, self._codec, self._seed = layout, codec, seed
        self._length = payload_bytes(layout, codec)
        self._inspection = Inspection(layout, norm_bound)
        self._seen = 0
        self._refused: str | None = None

    def take(self, block: Bytes, digest: bytes = b"") -> None:
        """Writes the next block, which hashes it, and inspects the completed shards; `digest` as for Incoming.write."""
        self.incoming.write(block, digest)
        if not self.incoming.continued and self.incoming.length < self._length:
            self._inspect_written_shards()

    def take_piece(self, digest: bytes, piece: Bytes) -> None:
        """Takes the next piece, which a crash of this process does not lose.

        Raises Refused, and writes nothing, where the piece does not have the digest.
        """
        framing.check_piece(digest, piece, self.incoming.length)
        self.take(piece, digest)
        self.incoming.flush()

    def found(self) -> Usable | Diverged | PayloadRefused:
        """Returns whether the complete payload is usable, diverged or malformed.

        A malformed payload is its maker's fault, since the committed root covers it.
        """
        if self.incoming.length != self._length:
            return PayloadRefused(f"it has {self.incoming.length} bytes, not {self._length}")
        self._inspect_written_shards()
        if self._layout.weighed:
            with self.incoming.mapped() as data:
                self._inspection.see_weight(weight_of(self._layout, data))
        return self._inspection.verdict() if self._refused is None else PayloadRefused(self._refused)

    def _inspect_written_shards(self) -> None:
        """Inspects the shards that are completely written."""
        while self._refused is None and self._seen < len(self._layout.shards):
            place = shard_place(self._layout, self._seen, self._codec)
            if place.stop > self.incoming.length:
                return
            with self.incoming.mapped() as data:
                self._refused = self._inspect_shard(memoryview(data)[place])
            self._seen += 1

    def _inspect_shard(self, packed: memoryview) -> str | None:
        """Returns why the shard is malformed, or None; as text, since an error's frames would keep the mapping open."""
        with packed:
            try:
                self._inspection.inspect_shard(self._seen, self._unpack_shard(packed))
            except PayloadRefused as error:
                return error.detail
        return None

    def _unpack_shard(self, packed: memoryview) -> Vector:
        return unpack_shard(self._layout, packed, self._seen, self._codec, self._seed)


class IncomingReceipt(IncomingUpload):
    """A receipt that a holder's vector is in its round's sum: it must equal the expected bytes; others are refused."""

    def __init__(self, incoming: Incoming, layout: Layout, codec: Codec, seed: bytes, receipt: bytes | None) -> None:
        super().__init__(incoming, layout, codec, seed, 0.0)
        self._receipt = receipt

    def found(self) -> Usable | Diverged | PayloadRefused:
        if self._receipt is None:
            return PayloadRefused("the holder's vector is in no sum of this round that is there")
        with self.incoming.mapped() as data:
            mine = bytes(data) == self._receipt
        return Usable(0.0, 0.0) if mine else PayloadRefused("it is not the receipt of the holder's vector")

    def _inspect_written_shards(self) -> None:
        """Inspects nothing: no part of a receipt is an answer."""


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
    finding: Found = arrival.found()
    if not want.spec.repeatable and isinstance(finding, Diverged):  # an honest holder's answer is within the bounds
        finding = PayloadRefused(f"it is not within the job's bounds: {finding.unmeasured}")
    elif want.sketch is not None and isinstance(finding, PayloadRefused):  # a malformed payload has no sketch
        finding = Unlike(finding.detail)
    elif want.sketch is not None:
        with arrival.incoming.mapped() as data:
            codec = load_codec(want.spec.uplink.codec)
            sketch = sketch_packing.of_payload(want.layout, data, codec, want.seed, want.sketch.seed)
            same = sketch_packing.pack_sketch(sketch, sketch) == want.sketch.numbers
        finding = finding if same else Unlike(SKETCHED_OTHERWISE)
    delivery = Delivery(want, arrival.incoming, want.root, finding)
    if delivery.stored:
        with record_span("keep payload"):
            if not want.spec.repeatable:  # a holder's answer: unless booked, it is never served and then dropped
                with context.begin() as work:
                    unneeded.release_blobs(work, want.job, blob_cleanup.PAYLOAD, [want.root], context.clock())
            context.blobs.store_blob(arrival.incoming)
    return delivery


def find_upload_url(context: Context, reader: RowReader, replica: Replica, task: Task, seconds: float) -> str | None:
    """Returns a URL that takes the replica's payload for `seconds`; None if it is uploaded to the service itself."""
    if not context.blobs.reached_past_us:
        return None
    job = reader.get_one(Job, task.job_id)
    length = length_of(jobs.load_spec(job), layout_of(job))
    return context.blobs.door(build_upload_name(replica.id, replica.fence), length, seconds)


def missing_parts(context: Context, claim: UploadClaim) -> list[PartAddress]:
    """Returns the addresses of parts that have not come, and puts off the deadline where parts come steadily.

    Raises NotFound, TooLate or Conflict where the payload is not wanted, or where uploads come through the service.
    """
    (want,) = find_grants(context, [claim])
    if isinstance(want, MarketError):
        raise want
    missing = context.blobs.missing_parts(build_upload_name(claim.replica, claim.fence), want.length)
    put_off(context, want, sum(part.length for part in missing))
    return missing[:ADDRESSES]


def fetch_direct_upload(context: Context, want: UploadGrant, fence: int, files: ExitStack) -> Delivery | None:
    """Takes the upload at the replica's URL; None if it was paid before.

    Raises NotFound or Conflict if it is not the payload.
    """
    if want.paid:
        return None
    arrival = build_incoming_upload(
        want, files.enter_context(context.blobs.left(build_upload_name(want.replica, fence), want.length))
    )
    return inspect_and_store_payload(context, want, arrival)


def build_upload_name(replica: str, fence: int) -> str:
    return f"{replica} {fence}"
