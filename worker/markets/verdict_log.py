"""Checks and records the waves, verdicts and vouchers of replicas. A breach is recorded as a lasting grievance."""

import time
from collections.abc import Callable
from typing import Final

from gradmarket.market.messages import Offer
from gradmarket.market.rules import proof
from gradmarket.market.rules.lifecycle import IN_FLIGHT, PAID, is_final_state
from gradmarket.market.rules.proof import Fault, OfferScope
from gradmarket.market.terms import ReplicaId, ReplicaState, Units
from gradmarket.market.wire.poll import SignedVerdict, SignedVoucher, WaveOpened, hash_of
from worker.markets.leasing import UNFIT
from worker.markets.worker_context import WorkerContext
from worker.money.account_store import convert_to_amount
from worker.protocol import records
from worker.protocol.in_flight import InFlight, InFlightFolder
from worker.protocol.records import ReplicaRecord

_AGREE: Final = ReplicaState.AGREE


class VerdictLog:
    """Each method returns whether it recorded something new."""

    def __init__(
        self, context: WorkerContext, replica_files: InFlightFolder, clock: Callable[[], float] = time.time
    ) -> None:
        self._context = context
        self._replica_files = replica_files
        self._clock = clock

    def wave(self, opened: WaveOpened) -> bool:
        held = self._replica_files.held.get(opened.replica)
        if held is None or held.prepared is None or held.opened or held.state not in proof.BEFORE_REVEAL:
            return False
        context = self._context
        faults = proof.of_opening(self._build_offer_scope(held.offer), opened, context.address, held.prepared.sealed)
        breach = next(faults, None)
        if breach is not None:
            return self._record_breach(breach, held.replica)
        try:
            sketch = context.sketch(held, self._replica_files.payload(held.replica), opened)
        except (*UNFIT, OSError) as error:
            text = f"Could not sketch {held.replica}, so it cannot be revealed: {error}"
            context.journal.once("unsketched", text, replica=held.replica)
            return False
        self._replica_files.put(held, opened=True, wave=opened, sketch=sketch, state=ReplicaState.COMMITTED)
        return True

    def verdict(self, message: SignedVerdict) -> bool:
        held = self._replica_files.held.get(message.replica)
        if held is None:
            return message.state in PAID and self._record_vindication(message)
        if not held.open or (message.state is held.state and held.promised) or message.state in IN_FLIGHT - {_AGREE}:
            return False
        breach = proof.of_verdict(self._build_offer_scope(held.offer), message, self._context.address)
        if breach is not None:
            return self._record_breach(breach, held.replica)
        if (held.promised or held.sent) and proof.breaks_promise(message.state, held.asked, held.sent):
            breach = Fault.BROKEN_PROMISE if held.promised else Fault.TAKEN_UNPAID
        elif held.prepared is not None:
            breach = proof.of_answer(held.offer, message, hash_of(held.prepared.root), held.opened)
        if breach is not None:
            self._record_breach(breach, held.replica)
        if is_final_state(message.state):
            self._write_replica_record(held, message)
            self._apply_final_verdict(held, message)
            self._replica_files.put(held, state=message.state)
        elif breach is None:
            self._replica_files.save(held, state=_AGREE, promised=True, promise=message)
        else:
            self._replica_files.put(held, state=_AGREE)
        return True

    def _record_vindication(self, message: SignedVerdict) -> bool:
        """Records that a rejected answer is paid after all: an audit found it right. The new verdict is evidence."""
        context = self._context
        before = records.find_rejection(context.settings.data, context.domain, message.replica)
        if before is None or before.root is None:
            return False
        breach = proof.of_verdict(self._build_offer_scope(before.offer), message, context.address)
        breach = breach or proof.of_answer(before.offer, message, before.root, revealed=True)
        if breach is not None:
            return self._record_breach(breach, message.replica)
        record = before.model_copy(update={"at": self._clock(), "verdict": message})
        records.append_record(context.settings.data, context.domain, record)
        account = context.account_store.account(context.domain, before.lease.offer.job)
        context.account_store.record_vindication(account, before.lease.offer.price)
        pay = context.money.text(convert_to_amount(before.lease.offer.price, account))
        context.journal.report("vindicated", f"Paid after all, {pay}: {message.reason}.", replica=message.replica)
        return True

    def _write_replica_record(self, held: InFlight, message: SignedVerdict) -> None:
        record = ReplicaRecord(
            at=self._clock(),
            market=self._context.market.origin,
            lease=held.lease,
            prepared=held.prepared,
            wave=held.wave,
            promised=held.promised,
            promise=held.promise,
            asked=held.asked,
            sent=held.sent,
            uploaded=held.uploaded,
            verdict=message,
        )
        records.append_record(self._context.settings.data, self._context.domain, record)

    def _apply_final_verdict(self, held: InFlight, message: SignedVerdict) -> None:
        account = self._context.account_store.account(self._context.domain, held.lease.offer.job)
        if message.state in PAID:
            self._context.account_store.record_final_verdict(
                account, held.replica, held.lease.offer.price, accepted=True
            )
            pay = convert_to_amount(held.lease.offer.price, account)
            waits = " The pay may wait for a test of this worker's answers." if account.may_wait else ""
            text = f"Accepted: {self._context.money.text(pay)}.{waits}"
            self._context.journal.report("accepted", text, replica=held.replica, price=str(pay))
        elif message.state is ReplicaState.REJECTED:
            self._context.account_store.record_final_verdict(account, held.replica, Units(0), accepted=False)
            evidence = self._context.market.evidence(held.lease.job, held.lease.task)
            text = f"Rejected: {message.reason or 'no reason was given'}. The evidence: {evidence}"
            self._context.journal.report(
                "rejected", text, replica=held.replica, reason=message.reason, evidence=evidence
            )
        else:
            text = f"No pay for {held.replica}: {message.state}. {message.reason}".strip()
            self._context.journal.report("over", text, replica=held.replica, state=message.state, reason=message.reason)

    def voucher(self, message: SignedVoucher) -> bool:
        """Keeps a voucher that is signed by the job's signer and worth more than the one before.

        One worth less comes late: the answer of a waiting poll is overtaken by that of a short one.
        """
        context = self._context
        account = context.account_store.find(context.domain, message.chain_job)
        if account is None or (message.cumulative, message.signature) == (account.vouchered, account.signature):
            return False
        struct = message.struct(context.address)
        breach = proof.of_voucher(context.domain, struct, message.signature, account.signer)
        if breach is not None:
            return self._record_breach(
                breach, ReplicaId(f"voucher of job {message.chain_job} for {message.cumulative}")
            )
        if message.cumulative <= account.vouchered:
            return False
        in_flight = [held for held in self._replica_files.open() if held.lease.offer.job == message.chain_job]
        context.account_store.take(account, struct, message.signature, Units(sum(held.units for held in in_flight)))
        return True

    def _build_offer_scope(self, offer: Offer) -> OfferScope:
        return OfferScope(self._context.domain, self._context.signer, offer)

    def _record_breach(self, breach: Fault, replica: ReplicaId) -> bool:
        """Records a breach permanently, once: each counts as a gradient that this requester took unpaid."""
        line = f"{breach.name.lower()} ({replica})"
        signer = self._context.signer
        if line in self._context.account_store.dealings(signer).grievances:
            return False
        self._context.account_store.record_grievance(signer, line)
        self._context.journal.report(
            "breach", f"The requester broke a rule: {breach} ({replica}).", breach=breach.name.lower()
        )
        return True
