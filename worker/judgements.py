"""What becomes of a replica: waves, verdicts, vouchers, checked and written down. A breach is a lasting grievance."""

import time
from collections.abc import Callable
from typing import Final

from gradmarket.market.rules.lifecycle import IN_FLIGHT, PAID, over
from gradmarket.market.terms import ReplicaId, ReplicaState, Units
from gradmarket.market.wire import VerdictTold, VoucherTold, WaveOpened, hash_of
from gradmarket.worker import checks, records
from gradmarket.worker.checks import Breach
from gradmarket.worker.desk import Desk
from gradmarket.worker.held import Held, Shelf
from gradmarket.worker.leasing import UNFIT
from gradmarket.worker.records import Record
from gradmarket.worker.vouchers import Account, value

_AGREE: Final = ReplicaState.AGREE


class Judgements:
    """Each method returns whether something is new."""

    def __init__(self, desk: Desk, shelf: Shelf, clock: Callable[[], float] = time.time) -> None:
        self._desk = desk
        self._shelf = shelf
        self._clock = clock

    def wave(self, opened: WaveOpened) -> bool:
        held = self._shelf.held.get(opened.replica)
        if held is None or held.prepared is None or held.opened or held.state not in checks.BEFORE_REVEAL:
            return False
        me = (self._desk.address, held.prepared.sealed)
        breach = checks.wave(self._desk.domain, held.offer, opened, me, self._desk.signer)
        if breach is not None:
            return self._aggrieved(breach, held.replica)
        try:
            sketch = self._desk.sketch(held, self._shelf.payload(held.replica), opened)
        except (*UNFIT, OSError) as error:
            text = f"Could not sketch {held.replica}, so it cannot be revealed: {error}"
            self._desk.journal.once("unsketched", text, replica=held.replica)
            return False
        self._shelf.put(held, opened=True, wave=opened, sketch=sketch, state=ReplicaState.COMMITTED)
        return True

    def verdict(self, told: VerdictTold) -> bool:
        held = self._shelf.held.get(told.replica)
        if held is None:
            return told.state in PAID and self._vindicated(told)
        if not held.open or (told.state is held.state and held.promised) or told.state in IN_FLIGHT - {_AGREE}:
            return False
        desk = self._desk
        breach = checks.verdict(desk.domain, held.offer, told, desk.address, desk.signer)
        if breach is not None:
            return self._aggrieved(breach, held.replica)
        if held.promised and checks.breaks_promise(told.state, held.asked, held.sent):
            breach = Breach.BROKEN_PROMISE
        elif held.prepared is not None:
            breach = checks.fairness(held.offer, told, hash_of(held.prepared.root), held.opened)
        if breach is not None:
            self._aggrieved(breach, held.replica)
        if over(told.state):
            self._record(held, told)
            self._final(held, told)
            self._shelf.put(held, state=told.state)
        elif breach is None:
            self._shelf.save(held, state=_AGREE, promised=True, promise=told)
        else:
            self._shelf.put(held, state=_AGREE)
        return True

    def _vindicated(self, told: VerdictTold) -> bool:
        """An answer that was rejected is paid after all: an audit found it right. The new verdict is the evidence."""
        desk = self._desk
        before = records.rejection(desk.settings.data, desk.domain, told.replica)
        if before is None or before.root is None:
            return False
        breach = checks.verdict(desk.domain, before.offer, told, desk.address, desk.signer)
        breach = breach or checks.fairness(before.offer, told, before.root, revealed=True)
        if breach is not None:
            return self._aggrieved(breach, told.replica)
        record = before.model_copy(update={"at": self._clock(), "verdict": told})
        records.add(desk.settings.data, desk.domain, record)
        account = desk.book.account(desk.domain, before.lease.offer.job)
        desk.book.vindicated(account, before.lease.offer.price)
        pay = desk.money.text(value(before.lease.offer.price, account))
        desk.journal.say("vindicated", f"Paid after all, {pay}: {told.reason}.", replica=told.replica)
        return True

    def _record(self, held: Held, told: VerdictTold) -> None:
        record = Record(
            at=self._clock(),
            market=self._desk.market.origin,
            lease=held.lease,
            prepared=held.prepared,
            wave=held.wave,
            promised=held.promised,
            promise=held.promise,
            asked=held.asked,
            sent=held.sent,
            uploaded=held.uploaded,
            verdict=told,
        )
        records.add(self._desk.settings.data, self._desk.domain, record)

    def _final(self, held: Held, told: VerdictTold) -> None:
        account = self._account(held)
        if told.state in PAID:
            self._desk.book.judged(account, held.replica, held.lease.offer.price, accepted=True)
            pay = self._desk.money.text(value(held.lease.offer.price, account))
            self._desk.journal.say("accepted", f"Accepted: {pay}.", replica=held.replica, price=held.lease.offer.price)
        elif told.state is ReplicaState.REJECTED:
            self._desk.book.judged(account, held.replica, Units(0), accepted=False)
            evidence = self._desk.market.evidence(held.lease.job, held.lease.task)
            text = f"Rejected: {told.reason or 'no reason was given'}. The evidence: {evidence}"
            self._desk.journal.say("rejected", text, replica=held.replica, reason=told.reason, evidence=evidence)
        else:
            text = f"No pay for {held.replica}: {told.state}. {told.reason}".strip()
            self._desk.journal.say("over", text, replica=held.replica, state=told.state, reason=told.reason)

    def voucher(self, told: VoucherTold) -> bool:
        """Keeps a voucher that is signed by the job's signer and not worth less than the one before."""
        desk = self._desk
        account = desk.book.find(desk.domain, told.chain_job)
        if account is None or (told.cumulative, told.signature) == (account.vouchered, account.signature):
            return False
        struct = told.struct(desk.address)
        breach = checks.voucher(desk.domain, struct, told.signature, account.signer, account.vouchered)
        if breach is not None:
            return self._aggrieved(breach, ReplicaId(f"voucher of job {told.chain_job} for {told.cumulative}"))
        in_flight = [held for held in self._shelf.open() if held.lease.offer.job == told.chain_job]
        desk.book.take(account, struct, told.signature, Units(sum(held.units for held in in_flight)))
        return True

    def _account(self, held: Held) -> Account:
        return self._desk.book.account(self._desk.domain, held.lease.offer.job)

    def _aggrieved(self, breach: Breach, what: ReplicaId) -> bool:
        """Written down for good, once: each counts as a gradient that this requester took unpaid."""
        line = f"{breach.name.lower()} ({what})"
        signer = self._desk.signer
        if line in self._desk.book.dealings(signer).grievances:
            return False
        self._desk.book.aggrieved(signer, line)
        self._desk.journal.say("breach", f"The requester broke a rule: {breach} ({what}).", breach=breach.name.lower())
        return True
