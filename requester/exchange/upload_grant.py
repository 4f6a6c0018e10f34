"""Determines the payload that an upload must be, before a byte of it is read.

An upload that comes steadily over a slow link gets more time, as much as market.rules.stragglers allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gradmarket.market.errors import Conflict, MarketError
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, payload_bytes
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import lifecycle, stragglers
from gradmarket.market.terms import Address, Digest, Hash, ReplicaState, TaskState
from gradmarket.market.wire.poll import Answer
from requester.context import Context
from requester.exchange.commitments import TooLate, check_own_replica, check_signature
from requester.store import in_hand, jobs
from requester.store.facts import layout_of
from requester.store.in_hand import OwnReplica
from requester.store.locks import retry_on_conflict
from requester.store.round_sum import RECEIPT, find_round_sum
from requester.store.work import RowReader


@dataclass(frozen=True)
class RevealedSketch:
    """The payload's sketch under the wave's `seed`, to the bit; `numbers` are packed by market.rules.sketch_packing."""

    seed: Hash
    numbers: bytes


@dataclass(frozen=True)
class UploadGrant:
    """A permitted upload: exactly `length` bytes with the digest `root`."""

    replica: str
    task: str
    job: str
    worker: Address
    root: Digest
    length: int
    upload_s: int
    seed: bytes
    spec: JobSpec
    layout: Layout
    sketch: RevealedSketch | None
    paid: bool
    """Whether the payload was accepted before, so that the same bytes change nothing."""
    answer: Answer | None = None
    """The answer sent together with the payload; its signature is checked."""
    receipt: bytes | None = None
    """The bytes that the payload must have, where secure aggregation sums the round with the worker's vector in it."""


@dataclass(frozen=True, slots=True)
class UploadClaim:
    """A worker's request to upload a replica's payload."""

    worker: Address
    replica: str
    fence: int
    answer: Answer | None = None
    """The commitment and reveal that come with the payload, where one replica decides."""


def find_grants(context: Context, claims: Sequence[UploadClaim]) -> list[UploadGrant | MarketError]:
    """Returns a grant for each claim, in order; or NotFound, TooLate or Conflict if its payload is not wanted."""
    grants = list[UploadGrant | MarketError]()
    with context.reading() as reader:
        own = in_hand.own_replicas(reader, [claim.replica for claim in claims])
        for claim in claims:
            try:
                grants.append(_build_grant(context, reader, own.get(claim.replica), claim))
            except MarketError as error:
                grants.append(error)
    return grants


def _build_grant(context: Context, reader: RowReader, own: OwnReplica | None, claim: UploadClaim) -> UploadGrant:
    known = check_own_replica(own, claim.worker, claim.replica, claim.fence)
    replica, task, job = known.replica, known.task, known.job
    paid = replica.state in lifecycle.PAID
    leased = replica.state == ReplicaState.LEASED and context.clock() <= replica.lease_until
    # the whole vote on a task whose lease still runs
    early = claim.answer if leased and jobs.load_spec(job).decided_alone else None
    if early is not None:
        check_signature(context, task, claim.worker, early.commitment)
    elif replica.state != ReplicaState.AGREE and not paid:
        raise TooLate(f"the replica is {replica.state}")
    if task.state == TaskState.UPLOADING and task.uploader != replica.id:
        raise Conflict("another replica was asked for this payload")
    spec, layout = jobs.load_spec(job), layout_of(job)
    summed, revealed = find_round_sum(reader, spec), None
    if spec.verifier.sketched and known.wave is not None:
        revealed = RevealedSketch(known.wave.seed, replica.sketch or b"")
    return UploadGrant(
        replica=replica.id,
        task=task.id,
        job=job.id,
        worker=claim.worker,
        root=Digest(replica.root or "") if early is None else early.root,
        length=length_of(spec, layout),
        upload_s=task.offer.upload_seconds,
        seed=task.offer.seed,
        spec=spec,
        layout=layout,
        sketch=revealed,
        paid=paid,
        answer=early,
        receipt=None if summed is None else summed.find_receipt(reader, job, task.round, claim.worker),
    )


def length_of(spec: JobSpec, layout: Layout) -> int:
    """Returns the bytes of every payload of a job."""
    return payload_bytes(layout, load_codec(spec.uplink.codec)) if spec.secure is None else RECEIPT


LOOKS: Final = 4
"""Looks at the deadline in the offer's upload seconds: each is a transaction, and a fast upload needs none."""


class UploadPace:
    """Measures one request's upload, and puts its deadline off if that is too short for its rate."""

    def __init__(self, context: Context, want: UploadGrant, start: int) -> None:
        self._context, self._want = context, want
        self._came, self._left = 0, want.length - start
        self._began = context.clock()
        self._look_at = self._began + want.upload_s / LOOKS

    def count_arrived_bytes(self, length: int) -> None:
        """Counts `length` further bytes. Called by the thread that writes them."""
        self._came, self._left = self._came + length, self._left - length
        now = self._context.clock()
        if now >= self._look_at and self._left > 0:
            put_off(self._context, self._want, self._left, self._came / (now - self._began))
            self._look_at = now + self._want.upload_s / LOOKS


@retry_on_conflict
def put_off(context: Context, want: UploadGrant, left: int, rate: float | None = None) -> None:
    """Puts off the upload's deadline: `left` bytes are still to come, at `rate` bytes a second or, without it, at the
    rate since the payload was requested.

    Raises TooLate where the payload is neither wanted any more nor paid: the rest would come in vain.
    """
    with context.begin() as work:
        own = in_hand.of_replicas(work, [want.worker], [want.replica]).get(want.replica)
        task = None if own is None else own.hand.task
        if task is None or task.state != TaskState.UPLOADING or task.uploader != want.replica:
            if want.paid:
                return
            raise TooLate("the payload is no longer requested")
        now, last = context.clock(), task.due_most
        if task.due_at is not None and last is not None:
            since = now - stragglers.compute_request_time(last, want.upload_s)
            came = (want.length - left) / since if since > 0 else 0.0
            task.due_at = stragglers.put_off(
                task.due_at, last, want.upload_s, now, left, came if rate is None else rate
            )
