"""Inspects a payload while it is uploaded, so that little is left to do at its end."""

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.inspection import Diverged, Inspection, Usable
from gradmarket.market.gradient.payload import shard_place, unpack_shard, weight_of
from gradmarket.market.gradient.payload_layout import Layout, payload_bytes
from gradmarket.market.wire import framing
from graphdoc.encoding import Bytes
from requester.blobs.disk import Incoming


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
