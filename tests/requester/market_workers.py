"""Simulated workers: the key, the checks and the messages of a real one, with chosen computing and withholding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak

from gradmarket.market import signing
from gradmarket.market.errors import MarketError, NotFound, Refused
from gradmarket.market.gradient import payload, payload_layout
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.rules import secrets
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Hash, ReplicaId, ReplicaState, domain_hash
from gradmarket.market.wire.poll import (
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
    UploadRequest,
    WaveOpened,
    digest_of,
)
from graphdoc import tensors
from requester.exchange import outbox, payload_upload, poll, upload_grant
from tests.kit.behaviour import Arrays, Behaviour
from tests.kit.scripted import Held, Scripted

if TYPE_CHECKING:
    from tests.requester.market_fixture import MarketFixture


def key_of(name: str) -> PrivateKey:
    return PrivateKey(keccak(text=name))


def honest_answer(parameters: dict[str, np.ndarray], seed: bytes) -> Arrays:
    """Returns every honest worker's answer: a function of the parameters and the task's seed alone."""
    noise = np.random.default_rng(int.from_bytes(seed[:8], "big")).standard_normal(4).astype(np.float32)
    return {
        "loss": np.array(np.square(parameters["w"]).sum(), np.float32),
        "w": (parameters["w"] * np.float32(0.5) + noise * np.float32(0.125)).astype(np.float32),
        "m": (parameters["m"] + noise[:2]).astype(np.float32),
    }


class SimWorker(Scripted):
    def __init__(self, market: MarketFixture, key: PrivateKey, behaviour: Behaviour, determinism_class: str) -> None:
        super().__init__(key, behaviour, determinism_class)
        self.market = market
        self.acknowledged: dict[ReplicaId, ReplicaState] = {}
        """States of unknown replicas, whose lease was in a lost answer."""
        self.voucher: SignedVoucher | None = None

    # the steps of a turn, each of its own for tests that stop between them

    def turn(self) -> None:
        """One poll as a real worker's loop makes it, and the upload where one is wanted."""
        self.market.take_turns(self)

    def finish_turn(self) -> None:
        """Uploads the requested payloads."""
        for held in list(self.held.values()):
            if held.wanted and not held.brought and self.behaviour.uploads and held.state == ReplicaState.AGREE:
                self.upload(self._put(held, brought=True))
                self.market.drive()

    def send_poll(
        self,
        commitments: Sequence[CommitmentRequest] = (),
        reveals: Sequence[Reveal] = (),
        given_up: Sequence[LeaseReturn] = (),
        **others: Any,
    ) -> tuple[RefusedItem, ...]:
        """A poll by itself."""
        (told,) = poll.handle_polls(self.market.context, [self.poll(commitments, reveals, given_up, **others)])
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
        open_now = len(self.open())
        fields = {"capacity": max(0, self.capacity - open_now), "determinism_class": self.determinism_class} | others
        self.request = PollRequest(
            commitments=tuple(commitments),
            reveals=tuple(reveals),
            given_up=tuple(given_up),
            known={replica: held.state for replica, held in self.held.items()} | self.acknowledged,
            **fields,
        )
        return outbox.Poll(self.address, PollRequest.model_validate_json(self.request.model_dump_json()))

    def receive_answer(self) -> PollAnswer:
        """A poll's answer, checked as a worker checks it."""
        return self.take_in(self.load_answer())

    def take_in(self, told: PollAnswer) -> PollAnswer:
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
        return told

    def load_answer(self) -> PollAnswer:
        """A poll's answer, over the wire's JSON, that never reaches the worker."""
        (told,) = outbox.load_poll_answers(self.market.context, [self.newest_poll])
        return PollAnswer.model_validate_json(told.model_dump_json())

    @property
    def waiting(self) -> str:
        """The reason of its missing lease, as a poll that waited in vain gets it; costly in each turn."""
        return outbox.last_answer(self.market.context, self.newest_poll).waiting

    def list_unused(self, leaving: bool = False) -> list[str]:
        """Returns the jobs whose reservation it may release, as such a poll gets them; one that leaves by any poll."""
        if not leaving:
            return list(outbox.last_answer(self.market.context, self.newest_poll).unused)
        poll = replace(self.newest_poll, request=self.request.model_copy(update={"leaving": True}))
        (told,) = outbox.load_poll_answers(self.market.context, [poll])
        return list(told.unused)

    @property
    def newest_poll(self) -> outbox.Poll:
        return outbox.Poll(self.address, self.request)

    def request_work(self) -> None:
        self.market.request_work(self)

    @property
    def domain(self) -> Domain:
        return self.market.context.domain

    def sketched_layout(self, held: Held) -> payload_layout.Layout | None:
        return self.answer_layout if held.lease.job in self.market.sketched else None

    def new_salt(self, held: Held) -> Hash:
        return Hash(keccak(text=held.lease.replica))

    def compute(self, offer: OfferFields) -> bytes:
        blob = self.market.context.blobs.read(digest_of(offer.parameters))
        answer = self.behaviour.spoil(honest_answer(tensors.unpack_tensors(blob), offer.seed), self.address)
        return self.encode(answer, offer.seed)

    def encode(self, answer: Arrays, seed: bytes) -> bytes:
        return bytes(payload.encode_payload(self.answer_layout, answer, load_codec("fp32"), seed))

    @property
    def answer_layout(self) -> payload_layout.Layout:
        return payload_layout.Layout(
            (
                payload_layout.LayoutEntry("loss", (), "loss"),
                payload_layout.LayoutEntry("w", (4,), "gradient"),
                payload_layout.LayoutEntry("m", (2,), "buffer"),
            )
        )

    def upload(self, held: Held, data: bytes | None = None) -> PollAnswer:
        """As the HTTP route takes it: first the request, then the bytes with their root.

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
            arrival = payload_upload.build_incoming_upload(want, incoming)
            arrival.take(data)
            delivery = payload_upload.inspect_and_store_payload(context, want, arrival)
            (told,) = poll.handle_polls(context, [replace(self.poll(**said), deliveries=(delivery,))])
        for item in told.refusals:
            raise NotFound(item.detail) if item.code == "not_found" else Refused(item.detail)
        return told

    # messages that it receives

    def _check(self, struct: signing.Struct, signature: bytes) -> None:
        signing.check_struct_signature(
            self.market.context.domain, struct, signature, signing.address_of(self.market.signer)
        )

    def _leased(self, lease: Lease) -> None:
        self._check(lease.offer.struct(), lease.signature)
        self.held.setdefault(lease.replica, Held(lease))

    def _wave_opened(self, wave: WaveOpened) -> None:
        held = self.held[wave.replica]
        link = wave.secret
        for _ in range(wave.wave + 1):
            link = domain_hash("link", link)
        assert link == held.lease.offer.anchor
        assert self.address in {worker for worker, _ in wave.commitments}
        offer = self.offer(held)
        self._check(wave.struct(offer, secrets.digest_of(wave.commitments)), wave.signature)
        self._put(held, wave=wave)

    def _wanted(self, wanted: UploadRequest) -> None:
        self._put(self.held[wanted.replica], wanted=True, brought=False)

    def _judged(self, told: SignedVerdict) -> None:
        held = self.held.get(told.replica)
        if held is None:
            self.acknowledged[told.replica] = told.state
            return
        if told.signature is not None:
            self._check(told.struct(self.offer(held), self.address), told.signature)
        self._put(held, state=told.state, told=told)

    def _paid(self, voucher: SignedVoucher) -> None:
        self._check(voucher.struct(self.address), voucher.signature)
        assert self.voucher is None or voucher.cumulative >= self.voucher.cumulative
        self.voucher = voucher


def part_of(held: Held) -> PayloadPart:
    return PayloadPart(replica=held.lease.replica, fence=held.lease.fence)


def answered(market: MarketFixture, worker: SimWorker, said: PollRequest) -> PollAnswer:
    """Returns the answer to a poll that has waited."""
    (told,) = outbox.load_poll_answers(market.context, [outbox.Poll(worker.address, said)])
    return told


def wants(
    market: MarketFixture, worker: SimWorker, replica: ReplicaId, fence: int, said: Answer | None = None
) -> upload_grant.UploadGrant:
    """Raises MarketError where nothing is wanted."""
    (found,) = upload_grant.find_grants(
        market.context, [upload_grant.UploadClaim(worker.address, replica, fence, said)]
    )
    if isinstance(found, MarketError):
        raise found
    return found
