"""Private jobs whose rounds are summed under masks: this holder's part in them (market.features.secure_sums).

It computes a round, masks it, and helps to unmask the sum. It blocks until the sum is there, in the thread that
computes a lease. It returns the receipt for which the worker is paid; the answer itself never leaves this machine
without masks.
"""

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel

from contracts import events
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.features.secure_sums import Aggregation, holder, sum_units
from gradmarket.market.features.secure_sums.holder import HolderState, HolderStep, Seat
from gradmarket.market.features.secure_sums.job_sum import (
    build_receipt,
    build_round_aggregation,
    build_sum_terms,
    number_of,
    start_of,
)
from gradmarket.market.features.secure_sums.ring import Integers
from gradmarket.market.features.secure_sums.sum_messages import StepTold
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.terms import Hash
from gradmarket.market.wire.framing import HEAD
from gradmarket.market.wire.poll import Lease, hash_of
from worker.feature import WorkerFeature
from worker.features.secure_sums.secure_state import SecureFolder, SecureRecord, record_of
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder

WAIT_S: Final = 20.0
BREATH_S: Final = 0.2
"""Seconds before the next question after an immediate response without news."""
MOST_ATTEMPTS: Final = 16
"""The most attempts at one sum in one lease."""
Said = tuple[HolderState, BaseModel]


@dataclass(frozen=True)
class SecureRounds:
    """All rounds of one market."""

    context: WorkerContext
    folder: SecureFolder

    def takes(self, spec: JobSpec) -> bool:
        return spec.secure is not None

    def compute(self, lease: Lease) -> tuple[bytes, float]:
        """Returns the receipt, and the step's seconds; 0 where a restarted worker needs no step any more.

        Raises Refused where this holder drops out of the round, and as Executor.work does.
        """
        publication = self.context.view(lease.job).publication
        if publication is None:
            raise NotFound(f"job {lease.job} has no publication")
        known = self.folder.load(lease.job, lease.offer.round)
        start, numbers, seconds = compute_start_digest(self.folder, publication.spec, lease), None, 0.0
        if known is None or known.step < HolderStep.MASKED:
            numbers, seconds = self._compute_integers(publication, lease)
        size = known.size if known is not None else 0 if numbers is None else numbers.size
        return SecureRound(self.context, self.folder, lease, publication, start, size, numbers).run(), seconds

    def _compute_integers(self, publication: Publication, lease: Lease) -> tuple[Integers, float]:
        """Returns the answer's gradients in whole units, with this holder's noise, and the step's seconds."""
        executor, offer, terms = self.context.executor, lease.offer.struct(), build_sum_terms(publication.spec)
        payload, seconds = executor.work(publication, offer)
        flat = np.concatenate(
            [tensor.reshape(-1) for tensor in executor.gradient(publication, offer, payload).values()]
        )
        return sum_units.convert_to_whole_units(
            flat, terms.norm_bound, terms.units, terms.noise, os.urandom(32)
        ), seconds


def compute_start_digest(folder: SecureFolder, spec: JobSpec, lease: Lease) -> Hash:
    """Returns the digest of the inputs of this holder's vector.

    Raises Refused where its round was begun from other parameters, or the previous round's digest is lost.
    """
    job, number, parameters = lease.job, lease.offer.round, lease.offer.parameters
    known, before = folder.load(job, number), folder.load(job, number - 1)
    if known is not None and known.parameters != parameters:
        raise Refused(f"round {number} was begun from other parameters than those of this lease")
    if known is not None:
        return known.start
    start = start_of(build_sum_terms(spec), parameters, None if before is None else before.start)
    if number and before is None and start != parameters:
        raise Refused(
            f"what this worker computed round {number - 1} from is not here, and round {number} follows from it"
        )
    return start


@dataclass
class SecureRound:
    """One lease. `start`: of its aggregation. `numbers`: the answer in whole units; None where its masked vector is
    stored already."""

    context: WorkerContext
    folder: SecureFolder
    lease: Lease
    publication: Publication
    start: Hash
    size: int
    numbers: Integers | None
    sent: tuple[int, int] = (-1, -1)
    """Attempt and step of the last message that the market has accepted."""
    tried: int = 0
    heard_at: float = field(default_factory=time.monotonic)

    def run(self) -> bytes:
        """Returns the receipt. Raises Refused where this holder drops out."""
        record = self.folder.load(self.lease.job, self.lease.offer.round) or self._begin_attempt(0)
        self.folder.forget(self.lease.job, self.lease.offer.round - 1)
        while True:
            reply = self._send_step(record)
            if reply.summed and record.receipt:
                return bytes.fromhex(record.receipt)
            if reply.step and reply.attempt != record.attempt:
                record = self._restart_attempt(record, reply.attempt)
            else:
                record = self._take_next_step(record, reply) or record

    def _restart_attempt(self, before: SecureRecord, attempt: int) -> SecureRecord:
        """Begins another attempt, unless it signed survivors in this round: two sums reveal their difference."""
        self.tried += 1
        if before.signed:
            raise Refused(f"it signed the survivors of attempt {before.attempt} of round {before.round}, and no others")
        if attempt < before.attempt or self.tried > MOST_ATTEMPTS or self.numbers is None:
            raise Refused(f"it takes no part in attempt {attempt} of round {before.round} after {before.attempt}")
        return self._begin_attempt(attempt)

    def _begin_attempt(self, attempt: int) -> SecureRecord:
        """Draws the secrets of an attempt, stores them, and returns the record with the first message."""
        number = self.lease.offer.round
        if number <= self.folder.signed(self.lease.job):
            raise Refused(f"it signed survivors of round {number} or a later one before, and signs no others")
        drawn = SecureRecord(
            job=self.lease.job,
            round=number,
            attempt=attempt,
            parameters=self.lease.offer.parameters,
            start=self.start,
            size=self.size,
            entropy=Hash(os.urandom(32)),
            step=1,
            said="",
        )
        return self._store_record(drawn, holder.advertise_keys(self._build_seat(drawn)))

    def _store_record(
        self, before: SecureRecord, message: Said, vector: bytes | None = None, paid: bytes = b""
    ) -> SecureRecord:
        record = record_of(before, *message, paid)
        self.folder.save(record, vector)
        return record

    def _take_next_step(self, record: SecureRecord, reply: StepTold) -> SecureRecord | None:
        """Takes the next step, if its inputs have come; stores it before it can be sent."""
        state = record.state(self._build_seat(record))
        if record.step == HolderStep.KEYS and reply.keys is not None:
            return self._store_record(record, holder.share_secrets(state, reply.keys))
        if record.step == HolderStep.SHARES and reply.shares is not None:
            if self.numbers is None:
                raise Refused("there is no answer to mask")
            after, message, vector = holder.mask_integers(state, reply.shares, self.numbers)
            return self._store_record(record, (after, message), vector, build_receipt(message))
        if record.step == HolderStep.MASKED and reply.survivors is not None:
            return self._store_record(record, holder.sign_survivors(state, reply.survivors))
        if record.step == HolderStep.SIGNED and reply.unmask is not None:
            return self._store_record(record, holder.reveal_mask_shares(state, reply.unmask))
        return None

    def _send_message(self, attempt: int, step: int, message: bytes, vector: bytes) -> StepTold:
        """Sends a step's message of the aggregation, as JSON, and waits for the response."""
        body = len(message).to_bytes(HEAD, "big") + message + vector
        path = f"/v1/work/aggregations/{quote(self.lease.replica, safe='')}/{attempt}/{step}"
        headers = {"content-type": "application/octet-stream", "content-length": str(len(body))}
        options = {"headers": headers, "content": lambda: nullcontext(body), "params": {"wait_s": WAIT_S}}
        return self.context.market.signed_in(StepTold, "POST", path, waits=WAIT_S, **options)

    def _send_step(self, record: SecureRecord) -> StepTold:
        """Sends the record's message until the market answers; the vector goes once."""
        here = record.attempt, record.step
        vector = self.folder.vector(record) if record.step == HolderStep.MASKED and self.sent != here else b""
        began = time.monotonic()
        try:
            reply = self._send_message(record.attempt, record.step, record.said.encode(), vector)
        except ServiceUnreachable:
            if self.context.signals.leaving or began - self.heard_at > self.lease.offer.lease_seconds:
                raise
            self.context.signals.pause(BREATH_S)
            return StepTold(attempt=record.attempt, step=0)
        self.heard_at = time.monotonic()
        if reply.step and reply.attempt == record.attempt:
            self.sent = here
        if self.heard_at - began < BREATH_S and reply == StepTold(attempt=reply.attempt, step=reply.step):
            self.context.signals.pause(BREATH_S)
        return reply

    def _build_seat(self, record: SecureRecord) -> Seat:
        context, members = self.context, self._build_aggregation(record.attempt)
        number = number_of(members.holders, context.address)
        return holder.build_seat(members, context.domain, number, record.entropy, context.own_signer)

    def _build_aggregation(self, attempt: int) -> Aggregation:
        """Returns the attempt's terms: all of them are this worker's own, from the publication and its own node."""
        ledger, chain_job = self.context.chain_view.ledger, self.lease.offer.job
        drawn = events.beacon(ledger, self.context.chain_view.opened(chain_job))
        if drawn is None:
            raise Refused("the chain has no block yet to draw the round's graph from")
        digest, number = hash_of(self.publication.digest), self.lease.offer.round
        return build_round_aggregation(
            build_sum_terms(self.publication.spec), digest, self.start, chain_job, number, attempt, drawn, self.size
        )


class MaskedAnswersFeature(WorkerFeature):
    name = "secure_sums"
    needs = ("private",)

    def open_computation(self, context: WorkerContext, replica_files: InFlightFolder) -> SecureRounds:
        return SecureRounds(context, SecureFolder(replica_files.folder / "secure"))
