"""Holders of a private job whose rounds are summed by secure aggregation, one step of one holder at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from contracts.events import beacon, opened_job
from gradmarket.market import signing
from gradmarket.market.errors import MarketError
from gradmarket.market.features.secure_sums import Aggregation, holder, sum_units
from gradmarket.market.features.secure_sums.holder import HolderState, HolderStep
from gradmarket.market.features.secure_sums.job_sum import (
    build_receipt,
    build_round_aggregation,
    build_sum_terms,
    number_of,
    start_of,
)
from gradmarket.market.features.secure_sums.ring import Integers
from gradmarket.market.features.secure_sums.sum_messages import StepTold
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Digest, Hash, ReplicaState
from gradmarket.market.wire.poll import CommitmentRequest, digest_of, hash_of
from graphdoc import tensors
from requester.features.secure_sums import secure_messages
from requester.features.secure_sums.secure_messages import StepAsked
from tests.kit.scripted import Held
from tests.requester.market_workers import SimWorker, honest_answer

if TYPE_CHECKING:
    from tests.requester.market_fixture import MarketFixture

NEVER = 6
Message = Any


def _same(message: Message) -> Message:
    return message


class SecureHolder(SimWorker):
    """`gone`: the step before which it falls silent. `lies`: step -> the change of its message."""

    gone = NEVER
    brings = True
    """Whether it brings its receipt."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lies: dict[int, Callable[[Message], Message]] = {}
        self.state: HolderState | None = None
        self.said: Message = None
        self.vector = b""
        self.paid_for = b""
        self.attempt = 0
        self.numbers: dict[int, Integers] = {}
        """Round -> its private vector."""
        self.refused: list[str] = []

    def commitments(self) -> list[CommitmentRequest]:
        return []

    def finish_turn(self) -> None:
        for held in list(self.held.values()):
            if held.state == ReplicaState.LEASED:
                self.exchange(held)
                self.market.drive()
        self.receive_answer()

    def exchange(self, held: Held) -> StepTold | None:
        """One question of a step, and the state that follows from its answer."""
        told = self.put(held)
        if told is None:
            return None
        if told.summed and self.brings:
            self.deliver(held)
        elif told.step and told.attempt != self.attempt:
            self.begin(held, told.attempt)
        else:
            self.follow(told)
        return told

    def put(self, held: Held) -> StepTold | None:
        """Sends its message again until the next one comes; returns that, or None where it is gone or refused."""
        if self.state is None or self.state.seat.aggregation.round != held.lease.offer.round:
            self.begin(held, 0)
        assert self.state is not None
        if self.state.step >= self.gone:
            return None
        try:
            return self.hand_in(held, self.said, self.vector)
        except MarketError as error:
            self.refused.append(str(error))
            self.gone = 0
        return None

    def hand_in(self, held: Held, said: Message, vector: bytes = b"", step: int | None = None) -> StepTold:
        """As the HTTP door takes it. Raises MarketError."""
        assert self.state is not None
        asked = StepAsked(self.address, held.lease.replica, self.attempt, step or int(self.state.step))
        door = secure_messages.find_step_grant(self.market.context, asked)
        body = said.model_dump_json().encode()
        assert len(body) <= door.most_json
        if not door.vector or door.known:
            return secure_messages.take_message(self.market.context, asked, body)
        with self.market.context.blobs.receive() as incoming:
            incoming.write(vector)
            return secure_messages.take_message(self.market.context, asked, body, incoming)

    def begin(self, held: Held, attempt: int) -> None:
        number = held.lease.offer.round
        self.numbers.setdefault(number, self.own_numbers(held))
        self.attempt, self.vector = attempt, b""
        members = self.members(number, attempt)
        entropy = blake3(f"{self.address} {number} {attempt}".encode()).digest()
        mine = number_of(members.holders, self.address)
        sign = signing.signer_of(self.key)
        state, said = holder.advertise_keys(holder.build_seat(members, self.market.context.domain, mine, entropy, sign))
        self._send_message(state, said)

    def follow(self, told: StepTold) -> None:
        state = self.state
        assert state is not None
        if state.step == HolderStep.KEYS and told.keys:
            self._send_message(*holder.share_secrets(state, told.keys))
        elif state.step == HolderStep.SHARES and told.shares:
            state, said, self.vector = holder.mask_integers(
                state, told.shares, self.numbers[state.seat.aggregation.round]
            )
            self.paid_for = build_receipt(said)
            self._send_message(state, said)
        elif state.step == HolderStep.MASKED and told.survivors:
            self._send_message(*holder.sign_survivors(state, told.survivors))
        elif state.step == HolderStep.SIGNED and told.unmask:
            self._send_message(*holder.reveal_mask_shares(state, told.unmask))

    def _send_message(self, state: HolderState, said: Message) -> None:
        self.state, self.said = state, self.lies.get(int(state.step), _same)(said)

    def deliver(self, held: Held) -> None:
        self.answer(self._put(held, payload=self.paid_for, salt=Hash(bytes(32))))

    @property
    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.market.the_job().spec)

    def own_numbers(self, held: Held) -> Integers:
        offer, spec = held.lease.offer, self.spec
        answer = honest_answer(
            tensors.unpack_tensors(self.market.context.blobs.read(digest_of(offer.parameters))), offer.seed
        )
        seed = blake3(f"noise {self.address} {offer.round}".encode()).digest()
        spoilt, terms = self.behaviour.spoil(answer, self.address)["w"], build_sum_terms(spec)
        return sum_units.convert_to_whole_units(spoilt, terms.norm_bound, terms.units, terms.noise, seed)

    def members(self, number: int, attempt: int) -> Aggregation:
        job = self.market.the_job()
        chain_job, digest = job.chain_job or 0, hash_of(Digest(job.spec_digest or ""))
        start = self.start_of_round(number)
        return build_round_aggregation(
            build_sum_terms(self.spec), digest, start, chain_job, number, attempt, drawn(self.market, chain_job), 4
        )

    def start_of_round(self, number: int) -> Hash:
        before = self.start_of_round(number - 1) if number else None
        return start_of(build_sum_terms(self.spec), hash_of(self.market.rounds()[number].parameters), before)


class Staller(SecureHolder):
    """From step `quiet` on it sends nothing new, and repeats its earlier request; at step 1, of no attempt."""

    quiet = 1
    brings = False

    def follow(self, told: StepTold) -> None:
        if self.state is not None and self.state.step + 1 < self.quiet:
            super().follow(told)

    def hand_in(self, held: Held, said: Message, vector: bytes = b"", step: int | None = None) -> StepTold:
        if self.quiet == 1:
            self.attempt = 2**20
        return super().hand_in(held, said, vector, step)


_DRAWN: dict[int, Hash] = {}


def drawn(market: MarketFixture, chain_job: int) -> Hash:
    """The beacon of a job, as each holder reads it from the chain."""
    if chain_job not in _DRAWN:
        ledger = market.context.ledger
        found = beacon(ledger, opened_job(ledger, chain_job))
        assert found is not None
        _DRAWN[chain_job] = found
    return _DRAWN[chain_job]


def mean_of(market: MarketFixture, holders: list[SecureHolder], number: int) -> np.ndarray:
    """Returns the mean of these holders' private vectors of a round, without any mask."""
    spec = JobSpec.model_validate(market.the_job().spec)
    total = np.sum([one.numbers[number] for one in holders], axis=0)
    return build_sum_terms(spec).units.mean(total, len(holders))
