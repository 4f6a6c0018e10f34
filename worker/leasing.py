"""Leases: taken where policy allows, computed, sealed and put on disk; or given back, with the reason said."""

import time
from collections.abc import Callable
from typing import Final

from gradmarket.market.errors import MarketError
from gradmarket.market.rules.faults import Fault, printed
from gradmarket.market.terms import ReplicaId
from gradmarket.market.wire import GivenUp, Lease
from gradmarket.worker.desk import Desk
from gradmarket.worker.faults import fault_of
from gradmarket.worker.held import Held, Shelf, prepare
from gradmarket.worker.policy import Reason
from gradmarket.worker.vouchers import Account

FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 60.0
"""Seconds without asking for work after a lease that was declined or failed: another would fare alike."""
UNFIT: Final = (MarketError, ValueError, TypeError, LookupError, ArithmeticError)
"""What a stranger's offer, document or data may raise; none of it may end the worker."""


class Leasing:
    """`given_up` is what the next poll says of leases that are given back."""

    def __init__(self, desk: Desk, shelf: Shelf, clock: Callable[[], float] = time.time) -> None:
        self._desk = desk
        self._shelf = shelf
        self._clock = clock
        self.given_up: dict[ReplicaId, GivenUp] = {}
        self._rest_until = 0.0
        self._declined = 0

    @property
    def resting(self) -> bool:
        return self._clock() < self._rest_until

    def capacity(self) -> int:
        """Further leases to ask for; none while the requester owes as much as this worker risks."""
        if self.resting or self.blocked():
            return 0
        return max(0, self._desk.limits.leases - len(self._shelf.open()))

    def blocked(self) -> bool:
        """Whether the requester owes as much as this worker risks, payloads that are with it and not paid included."""
        desk = self._desk
        owed = desk.book.unpaid(desk.signer) + self._shelf.handed_over()
        if owed < desk.limits.unpaid:
            return False
        grievances = "; ".join(desk.book.dealings(desk.signer).grievances)
        text = f"Stopped: {owed} gradients are not paid by {desk.signer}. {grievances}".rstrip()
        desk.journal.once("stopped", text, reason=Reason.UNPAID.name.lower(), unpaid=owed)
        return True

    def take(self, lease: Lease, leaving: bool) -> bool:
        """Puts the lease on the shelf, or gives it back; False where it was there already."""
        if lease.replica in self._shelf.held:
            return False
        why_not = "leaving" if leaving else self._consider(lease)
        if why_not is not None:
            self.give_up(lease, why_not, failed=False)
            return True
        self._declined = 0
        desk, offer = self._desk, lease.offer
        self._shelf.put(Held(lease=lease, instance=desk.domain.instance, taken_at=self._clock()))
        desk.book.offered(self._account(lease))
        desk.expect(lease)
        text = f"Working on round {offer.round}, task {offer.task} of {desk.name(lease.job)}."
        desk.journal.say("leased", text, replica=lease.replica, job=lease.job, round=offer.round, task=offer.task)
        return True

    def _consider(self, lease: Lease) -> str | None:
        try:
            found = self._desk.why_not(lease, self._shelf.open())
            reason = found.value if found is not None else None
        except UNFIT as error:
            reason = str(error)
        if reason is not None:
            self._declined += 1
            self._rest(min(LONGEST_REST_S, FIRST_REST_S * 2**self._declined))
            self._desk.journal.say("declined", f"Declined {lease.task}: {reason}.", replica=lease.replica, why=reason)
        return reason

    def _account(self, lease: Lease) -> Account:
        domain = self._desk.domain
        return Account(
            chain_id=domain.chain_id,
            contract=domain.contract,
            instance=domain.instance,
            chain_job=lease.offer.job,
            job=lease.job,
            signer=self._desk.signer,
            unit=self._desk.unit(lease.offer.job),
            price=lease.offer.price,
        )

    def compute(self, held: Held) -> None:
        """Computes and seals; on disk before the commitment can be sent."""
        desk = self._desk
        try:
            payload, seconds = desk.compute(held.lease)
        except UNFIT as error:
            desk.journal.say("failed", f"Could not compute {held.lease.task}: {error}", replica=held.replica)
            self.give_up(held.lease, str(error), failed=True, fault=fault_of(desk, held.lease, error))
            self._shelf.forget(held.replica)
            self._rest(FIRST_REST_S)
            return
        prepared = prepare(desk.domain, held, payload, desk.address, desk.own_signer, seconds)
        self._shelf.save_payload(held.replica, payload)
        self._shelf.save(prepared)

    def give_back(self) -> None:
        """Gives back what is not computed yet."""
        for held in self._shelf.open():
            if held.prepared is None:
                self.give_up(held.lease, "leaving", failed=False)
                self._shelf.forget(held.replica)

    def give_up(self, lease: Lease, reason: str, failed: bool, fault: Fault | None = None) -> None:
        why = printed(reason, 500)
        said = GivenUp(replica=lease.replica, fence=lease.fence, failed=failed, reason=why, fault=fault)
        self.given_up[lease.replica] = said

    def _rest(self, seconds: float) -> None:
        self._rest_until = self._clock() + seconds
