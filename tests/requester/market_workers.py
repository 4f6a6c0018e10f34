"""Simulated workers: the key, the checks and the messages of a real one; what it computes and withholds is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak

from gradmarket.market import signing
from gradmarket.market.digests import blob_digest
from gradmarket.market.errors import MarketError, NotFound, Refused
from gradmarket.market.gradient import payload, payload_layout
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import codec
from gradmarket.market.model import tensors
from gradmarket.market.rules import lifecycle, secrets
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId, ReplicaState
from gradmarket.market.wire import (
    NO_ROOT,
    Answer,
    CommitmentRequest,
    Lease,
    LeaseReturn,
    OfferFields,
    PayloadPart,
    PollAnswer,
    PollRequest,
    RefusedItem,
    Reveal,
    SignedVerdict,
    SignedVoucher,
    SketchRequest,
    UploadRequest,
    WaveOpened,
    digest_of,
    hash_of,
)
from gradmarket.requester.exchange import outbox, payload_upload, poll, upload_grant
from tests.requester.market_sketches import sketched

if TYPE_CHECKING:
    from tests.requester.market_fixture import MarketFixture

Arrays = dict[str, Vector]


def key_of(name: str) -> PrivateKey:
    return PrivateKey(keccak(text=name))


def honest_answer(parameters: dict[str, np.ndarray], seed: bytes) -> Arrays:
    """What every honest worker computes: a function of the parameters and the task's seed alone."""
    noise = np.random.default_rng(int.from_bytes(seed[:8], "big")).standard_normal(4).astype(np.float32)
    return {
        "loss": np.array(np.square(parameters["w"]).sum(), np.float32),
        "w": (parameters["w"] * np.float32(0.5) + noise * np.float32(0.125)).astype(np.float32),
        "m": (parameters["m"] + noise[:2]).astype(np.float32),
    }


def _same(answer: Arrays, _address: Address) -> Arrays:
    return answer


@dataclass(frozen=True)
class Behaviour:
    """`spoil` makes of the honest answer and the worker's address what it commits to."""

    spoil: Callable[[Arrays, Address], Arrays] = _same
    commits: bool = True
    reveals: bool = True
    uploads: bool = True
    sketches: Callable[[bytes], bytes] = bytes
    """Makes of its payload what its sketch is of."""


def scaled(factor: float) -> Behaviour:
    return Behaviour(lambda answer, _address: answer | {"w": (answer["w"] * np.float32(factor)).astype(np.float32)})


def filled(name: str, value: float) -> Behaviour:
    """Every worker that spoils like this gives the same answer: colluders."""
    return Behaviour(lambda answer, _address: answer | {name: np.full_like(answer[name], value)})


def _own_noise(answer: Arrays, address: Address) -> Arrays:
    noise = np.random.default_rng(int(address, 16) % 2**63).standard_normal(4).astype(np.float32)
    return answer | {"w": noise}


HONEST = Behaviour()
NOISE = Behaviour(_own_noise)
"""Every such worker gives another answer."""
SIGN_FLIP = scaled(-1.0)
IDLE = Behaviour(commits=False)
COMMIT_AND_STALL = Behaviour(reveals=False)
WITHHOLDER = Behaviour(uploads=False)


@dataclass(frozen=True)
class Held:
    """A replica as its worker knows it."""

    lease: Lease
    state: ReplicaState = ReplicaState.LEASED
    payload: bytes = b""
    salt: Hash = NO_ROOT
    wave: WaveOpened | None = None
    wanted: bool = False
    told: SignedVerdict | None = None

    @property
    def root(self) -> Digest:
        return blob_digest(self.payload)


class SimWorker:
    def __init__(self, market: MarketFixture, key: PrivateKey, behaviour: Behaviour, determinism_class: str) -> None:
        self.market, self.key, self.behaviour = market, key, behaviour
        self.determinism_class = determinism_class
        self.address = signing.address_of(key)
        self.held: dict[ReplicaId, Held] = {}
        self.acknowledged: dict[ReplicaId, ReplicaState] = {}
        """Told of, but never known: the answer that brought the lease was lost."""
        self.voucher: SignedVoucher | None = None
        self.waiting = ""
        self.capacity = 1
        self.refusals: list[RefusedItem] = []

    # the steps of a turn, each of its own for tests that stop between them

    def turn(self) -> None:
        """One poll as a real worker's loop makes it, and the upload where one is wanted."""
        self.say(commitments=self.commitments(), reveals=self.reveals())
        self.market.drive()
        self.hear()
        for held in list(self.held.values()):
            if held.wanted and self.behaviour.uploads and held.state == ReplicaState.AGREE:
                self.upload(held)
                self.market.drive()

    def say(
        self,
        commitments: Sequence[CommitmentRequest] = (),
        reveals: Sequence[Reveal] = (),
        given_up: Sequence[LeaseReturn] = (),
        **others: Any,
    ) -> tuple[RefusedItem, ...]:
        """A poll by itself."""
        (told,) = poll.hear(self.market.context, [self.poll(commitments, reveals, given_up, **others)])
        self.refusals.extend(told.refusals)
        return told.refusals

    def poll(
        self,
        commitments: Sequence[CommitmentRequest] = (),
        reveals: Sequence[Reveal] = (),
        given_up: Sequence[LeaseReturn] = (),
        **others: Any,
    ) -> outbox.Poll:
        """A poll's request, over the wire's JSON."""
        open_now = sum(not lifecycle.over(held.state) for held in self.held.values())
        fields = {"capacity": max(0, self.capacity - open_now), "determinism_class": self.determinism_class} | others
        self.request = PollRequest(
            commitments=tuple(commitments),
            reveals=tuple(reveals),
            given_up=tuple(given_up),
            known={replica: held.state for replica, held in self.held.items()} | self.acknowledged,
            **fields,
        )
        return outbox.Poll(self.address, PollRequest.model_validate_json(self.request.model_dump_json()))

    def hear(self) -> PollAnswer:
        """A poll's answer, checked as a worker checks it."""
        told = self.tell()
        for lease in told.leases:
            self._leased(lease)
        for wave in told.waves:
            self._wave_opened(wave)
        for upload in told.uploads:
            self._wanted(upload)
        for verdict in told.verdicts:
            self._judged(verdict)
        for voucher in told.vouchers:
            self._paid(voucher)
        self.waiting = told.waiting
        return told

    def tell(self) -> PollAnswer:
        """A poll's answer, over the wire's JSON, that never reaches the worker."""
        told = outbox.last_answer(self.market.context, outbox.Poll(self.address, self.request))
        return PollAnswer.model_validate_json(told.model_dump_json())

    def ask(self) -> None:
        self.say()
        self.market.drive()
        self.hear()

    def newest(self) -> Held:
        return list(self.held.values())[-1]

    def commitments(self) -> list[CommitmentRequest]:
        if not self.behaviour.commits:
            return []
        return [self.commitment(self.computed(held)) for held in self._in(ReplicaState.LEASED)]

    def commitment(self, held: Held, **changes: Any) -> CommitmentRequest:
        """Sealed and signed; `changes` are what a cheater says instead."""
        offer = signing.digest(self.market.context.domain, held.lease.offer.struct())
        fields = {
            "replica": held.lease.replica,
            "fence": held.lease.fence,
            "sealed": secrets.seal(offer, self.address, held.salt, hash_of(held.root)),
        } | changes
        unsigned = CommitmentRequest(signature=bytes(65), **{k: v for k, v in fields.items() if k != "signature"})
        digest = signing.digest(self.market.context.domain, unsigned.struct(offer, self.address))
        signature = fields.get("signature", signing.sign(self.key, digest))
        return unsigned.model_copy(update={"signature": signature})

    def reveals(self) -> list[Reveal]:
        if not self.behaviour.reveals:
            return []
        return [self.revelation(held) for held in self._in(ReplicaState.LEASED) if held.wave is not None]

    def revelation(self, held: Held, **changes: Any) -> Reveal:
        fields = {"replica": held.lease.replica, "fence": held.lease.fence, "salt": held.salt, "root": held.root}
        return Reveal(**(fields | {"sketch": self.sketch(held)} | changes))

    def sketch(self, held: Held, **changes: Any) -> SketchRequest | None:
        """Where the job compares sketches; `changes` are what a cheater says instead."""
        if held.lease.job not in self.market.sketched or held.wave is None:
            return None
        lied = self.behaviour.sketches(held.payload)
        own = {"determinism_class": self.determinism_class} | changes
        return sketched(
            self.market.context.domain, self.key, self.floor_layout, lied, held.lease.offer, held.wave, **own
        )

    def give_up(self, held: Held, failed: bool = False) -> LeaseReturn:
        return LeaseReturn(replica=held.lease.replica, fence=held.lease.fence, failed=failed, reason="declined")

    def computed(self, held: Held) -> Held:
        if held.payload:
            return held
        return self._put(held, payload=self.compute(held.lease.offer), salt=keccak(text=held.lease.replica))

    def compute(self, offer: OfferFields) -> bytes:
        blob = self.market.context.blobs.read(digest_of(offer.parameters))
        answer = self.behaviour.spoil(honest_answer(tensors.unpack(blob), offer.seed), self.address)
        return self.encode(answer, offer.seed)

    def encode(self, answer: Arrays, seed: bytes) -> bytes:
        return bytes(payload.encode(self.floor_layout, answer, codec("fp32"), seed))

    @property
    def floor_layout(self) -> payload_layout.Layout:
        return payload_layout.Layout(
            (
                payload_layout.LayoutEntry("loss", (), "loss"),
                payload_layout.LayoutEntry("w", (4,), "gradient"),
                payload_layout.LayoutEntry("m", (2,), "buffer"),
            )
        )

    def upload(self, held: Held, data: bytes | None = None) -> PollAnswer:
        """As the HTTP door takes it: what is wanted first, then the bytes with their root.

        Raises MarketError where that is not wanted.
        """
        want = wants(self.market, self, held.lease.replica, held.lease.fence)
        return self.bring(want, held.payload if data is None else data, payloads=(part_of(held),), capacity=0)

    def answer(self, held: Held, data: bytes | None = None, **others: Any) -> PollAnswer:
        """Commitment, reveal and payload in one request, as the HTTP door takes it."""
        held = self.computed(held)
        said = Answer(commitment=self.commitment(held), salt=held.salt, root=held.root)
        want = wants(self.market, self, held.lease.replica, held.lease.fence, said)
        data = held.payload if data is None else data
        return self.bring(want, data, answers=(said,), payloads=(part_of(held),), **others)

    def bring(self, want: upload_grant.UploadGrant, data: bytes, **said: Any) -> PollAnswer:
        """A poll with a payload; its answer reaches the worker."""
        context = self.market.context
        with context.blobs.receive() as incoming:
            arrival = payload_upload.arriving(want, incoming)
            arrival.take(data)
            delivery = payload_upload.look(context, want, arrival)
            (told,) = poll.hear(context, [replace(self.poll(**said), deliveries=(delivery,))])
        for item in told.refusals:
            raise NotFound(item.detail) if item.code == "not_found" else Refused(item.detail)
        return told

    # what it is told

    def _in(self, state: ReplicaState) -> list[Held]:
        return [held for held in self.held.values() if held.state == state]

    def _put(self, held: Held, **changes: Any) -> Held:
        self.held[held.lease.replica] = replace(held, **changes)
        return self.held[held.lease.replica]

    def _check(self, struct: signing.Struct, signature: bytes) -> None:
        signing.check(self.market.context.domain, struct, signature, signing.address_of(self.market.signer))

    def _offer(self, held: Held) -> Hash:
        return signing.digest(self.market.context.domain, held.lease.offer.struct())

    def _leased(self, lease: Lease) -> None:
        self._check(lease.offer.struct(), lease.signature)
        self.held.setdefault(lease.replica, Held(lease))

    def _wave_opened(self, wave: WaveOpened) -> None:
        held = self.held[wave.replica]
        link = wave.secret
        for _ in range(wave.wave + 1):
            link = secrets.tagged("link", link)
        assert link == held.lease.offer.anchor
        assert self.address in {worker for worker, _ in wave.commitments}
        offer = self._offer(held)
        self._check(wave.struct(offer, secrets.digest_of(wave.commitments)), wave.signature)
        self._put(held, wave=wave)

    def _wanted(self, wanted: UploadRequest) -> None:
        self._put(self.held[wanted.replica], wanted=True)

    def _judged(self, told: SignedVerdict) -> None:
        held = self.held.get(told.replica)
        if held is None:
            self.acknowledged[told.replica] = told.state
            return
        if told.signature is not None:
            self._check(told.struct(self._offer(held), self.address), told.signature)
        self._put(held, state=told.state, told=told)

    def _paid(self, voucher: SignedVoucher) -> None:
        self._check(voucher.struct(self.address), voucher.signature)
        assert self.voucher is None or voucher.cumulative >= self.voucher.cumulative
        self.voucher = voucher


def part_of(held: Held) -> PayloadPart:
    return PayloadPart(replica=held.lease.replica, fence=held.lease.fence)


def answered(market: MarketFixture, worker: SimWorker, said: PollRequest) -> PollAnswer:
    """What a poll that has waited would be told."""
    (told,) = outbox.answers(market.context, [outbox.Poll(worker.address, said)])
    return told


def wants(
    market: MarketFixture, worker: SimWorker, replica: ReplicaId, fence: int, said: Answer | None = None
) -> upload_grant.UploadGrant:
    """Raises MarketError where nothing is wanted."""
    (found,) = upload_grant.find(market.context, [upload_grant.UploadClaim(worker.address, replica, fence, said)])
    if isinstance(found, MarketError):
        raise found
    return found
