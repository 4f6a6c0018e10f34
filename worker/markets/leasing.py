"""Leases: accepted if policy allows, computed, sealed and put on disk; or given back with a reason."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final

from gradmarket.market.errors import MarketError
from gradmarket.market.rules.faults import shorten_printable
from gradmarket.market.terms import ReplicaId
from gradmarket.market.wire.poll import Lease, LeaseReturn, StepFault
from gradmarket.network.chain_errors import ChainUnreachable
from worker.markets.background import Computed, LeaseComputation, Step, in_thread
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlight, InFlightFolder, seal_payload
from worker.protocol.policy import Guard

FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 60.0
"""Seconds without a request for work after a declined or failed lease: the next would probably fail too."""
OWN_ROWS: Final = "not computed: a holder gives no reason, since that might disclose its rows"
UNFIT: Final = (MarketError, ValueError, TypeError, LookupError, ArithmeticError)
"""Errors that an untrusted offer, document or data may raise; none of them may end the worker."""
MAY_WAIT: Final = 100
"""Accepted answers whose pay a worker allows to wait for its test: at the least honest share with any weight, a test of
an honest operator ends after 77 at most in nineteen of twenty cases, once the job has its trusted runs."""


def compute_rest(declined: int) -> float:
    """Returns the seconds without a lease after `declined` declined ones in a row."""
    return min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(declined, 32))


def on_own_rows(context: WorkerContext, lease: Lease) -> bool:
    """Returns whether the task is computed on rows of this machine's own, about which the market learns nothing."""
    spec = context.spec(lease.job)
    return spec is not None and not spec.repeatable


class Leasing:
    """`given_up` holds the leases that the next poll gives back."""

    def __init__(
        self,
        context: WorkerContext,
        replica_files: InFlightFolder,
        clock: Callable[[], float] = time.time,
        computations: Sequence[LeaseComputation] = (),
    ) -> None:
        self._context = context
        self._replica_files = replica_files
        self._computations = computations
        self._clock = clock
        self.given_up: dict[ReplicaId, LeaseReturn] = {}
        self.steps: dict[int, Step] = {}
        """The leases that are computed in threads, by their lane."""
        self.paused = ""
        """Why the owner's rules keep this worker from taking tasks."""
        self._rest_until = 0.0
        self._declined = 0
        self._waiting: dict[ReplicaId, float] = {}
        """Leases that wait for the chain, with the time at which each ends."""

    @property
    def resting(self) -> bool:
        return self._clock() < self._rest_until

    def capacity(self, ending: int = 0) -> int:
        """Returns the number of further leases to request once `ending` of the replicas in flight are over.

        0 while the requester owes as much as this worker risks.
        """
        if self.is_at_unpaid_limit() or self.resting or self._is_paused():
            return 0
        now = self._clock()
        waiting = sum(until > now for until in self._waiting.values())
        return max(0, self._context.limits.leases - len(self._replica_files.open()) + ending - waiting)

    def _is_paused(self) -> bool:
        """Returns whether the owner's rules keep this worker from taking tasks now; reports it once."""
        context, before = self._context, self.paused
        self.paused = context.find_pause(bool(self.steps), context.signals.pause)
        if self.paused:
            context.journal.once("paused", f"Takes no task now: {self.paused}.", why=self.paused)
        elif before:
            context.journal.report("resumed", "Takes tasks again.")
        return bool(self.paused)

    def may_send(self) -> int:
        """Returns the number of further payloads that may leave before one is paid."""
        return max(0, self._context.limits.unpaid - self._count_unpaid_gradients())

    def _count_unpaid_gradients(self) -> int:
        """Counts unpaid gradients of the requester; payloads that were sent and are not paid count too."""
        return self._context.account_store.unpaid(self._context.signer) + self._replica_files.handed_over()

    def is_at_unpaid_limit(self) -> bool:
        """Returns whether the requester owes as much as this worker risks."""
        context, owed = self._context, self._count_unpaid_gradients()
        if owed < context.limits.unpaid:
            return False
        grievances = "; ".join(context.account_store.dealings(context.signer).grievances)
        text = f"Stopped: {owed} gradients are not paid by {context.signer}. {grievances}".rstrip()
        context.journal.once("stopped", text, reason=Guard.UNPAID.name.lower(), unpaid=owed)
        return True

    def take(self, lease: Lease, leaving: bool) -> bool:
        """Adds the lease to the replicas in flight, or gives it back; returns False if it does neither.

        It does neither for a replica already in flight, and while the chain does not answer and half of the lease is
        left. A worker that gives a lease back is not drawn again for the same attempt, and the market offers it again
        with each answer.
        """
        if lease.replica in self._replica_files.held:
            return False
        try:
            why_not = "leaving" if leaving else self._find_decline_reason(lease)
        except ChainUnreachable as error:
            if 2 * lease.seconds > lease.offer.lease_seconds:
                self._waiting[lease.replica] = self._clock() + lease.seconds
                self._context.journal.once("chain", f"Waiting with {lease.task}: {error}.", replica=lease.replica)
                return False
            why_not = self._decline_lease(lease, str(error))
        self._waiting.pop(lease.replica, None)
        if why_not is not None:
            self.give_up(lease, why_not, failed=False)
            return True
        self._declined = 0
        context, offer = self._context, lease.offer
        self._replica_files.put(InFlight(lease=lease, instance=context.domain.instance, taken_at=self._clock()))
        spec = context.spec(lease.job)
        may_wait = MAY_WAIT if spec is not None and spec.verifier.scored else 0
        account = context.build_account(lease.job, offer.job, price=offer.price, may_wait=may_wait)
        context.account_store.record_offer(account)
        context.expect(lease)
        text = f"Working on round {offer.round}, task {offer.task} of {context.name(lease.job)}."
        context.journal.report("leased", text, replica=lease.replica, job=lease.job, round=offer.round, task=offer.task)
        return True

    def _find_decline_reason(self, lease: Lease) -> str | None:
        """Returns why to decline the lease, or None. Raises ChainUnreachable."""
        try:
            guard = self._context.why_not(lease, self._replica_files.open())
            reason = guard.value if guard is not None else None
            named = self._name_validators(lease) if guard is Guard.UNKNOWN_VALIDATORS else ""
        except ChainUnreachable:
            raise
        except UNFIT as error:
            reason, named = str(error), ""
        return None if reason is None else self._decline_lease(lease, reason, named)

    def _name_validators(self, lease: Lease) -> str:
        """Returns the validators that the job names, for its worker's owner to look up."""
        spec = self._context.spec(lease.job)
        return f" ({', '.join(spec.vesting.validators)})" if spec is not None and spec.vesting is not None else ""

    def _decline_lease(self, lease: Lease, reason: str, named: str = "") -> str:
        self._declined += 1
        self._pause_leasing(compute_rest(self._declined))
        text = f"Declined {lease.task}: {reason}{named}."
        self._context.journal.report("declined", text, replica=lease.replica, why=reason)
        return reason

    def compute(self) -> bool:
        """Computes the leases, each lane its own in a row; returns False without any."""
        todo = self._list_uncomputed_replicas()
        lanes = [[held for held in todo if self._choose_lane(held) == lane] for lane in range(self._lane_count)]
        for row in zip_longest(*lanes):
            chosen = [(held, self._choose_computation(held.lease)) for held in row if held is not None]
            first, *others = chosen
            futures = [(held, in_thread("compute", computation)) for held, computation in others]
            self._seal_answer(*first)
            for held, future in futures:
                self._seal_answer(held, future.result)
        return bool(todo)

    @property
    def _lane_count(self) -> int:
        return len(self._context.lanes.executors)

    def _choose_lane(self, held: InFlight) -> int:
        return self._context.lanes.choose(held.replica)

    def _choose_computation(self, lease: Lease) -> Callable[[], Computed]:
        """Returns the computation of the lease's payload: a feature's where it takes the job."""
        spec = self._context.spec(lease.job)
        other = (one for one in self._computations if spec is not None and one.takes(spec))
        return partial(next(other, self._context).compute, lease)

    def compute_beside(self) -> bool:
        """Makes each lane compute its next lease, and meanwhile seals results of threads; returns whether it had any.

        Failures are sealed first: the executor looks for their cause, and another step would occupy it.
        """
        done = [self.steps.pop(lane) for lane, step in list(self.steps.items()) if step.future.done()]
        computed = {step.of.replica for step in done}
        failed = [step for step in done if step.future.exception() is not None]
        self._seal_steps(failed)
        todo = [held for held in self._list_uncomputed_replicas() if held.replica not in computed]
        self._context.lanes.retain({held.replica for held in todo})
        for held in todo:
            lane = self._choose_lane(held)
            if lane not in self.steps:
                self.steps[lane] = Step(in_thread("compute", self._choose_computation(held.lease)), held)
        self._seal_steps([step for step in done if step not in failed])
        return bool(done)

    def _seal_steps(self, done: Sequence[Step]) -> None:
        for step in done:
            answered = self._replica_files.held.get(step.of.replica)
            if answered is not None and answered.open:
                self._seal_answer(answered, step.future.result)

    def _list_uncomputed_replicas(self) -> list[InFlight]:
        return [held for held in self._replica_files.open() if held.prepared is None]

    def _seal_answer(self, held: InFlight, computed: Callable[[], Computed]) -> None:
        """Seals the answer; it is on disk before the commitment can be sent."""
        context = self._context
        try:
            payload, seconds = computed()
        except UNFIT as error:
            context.journal.report("failed", f"Could not compute {held.lease.task}: {error}", replica=held.replica)
            self.give_up(held.lease, str(error), failed=True, fault=context.describe_fault(context, held.lease, error))
            self._replica_files.forget(held.replica)
            self._pause_leasing(FIRST_REST_S)
            return
        reported_s = 0.0 if on_own_rows(context, held.lease) else seconds
        prepared = seal_payload(context.domain, held, payload, context.address, context.own_signer, reported_s)
        self._replica_files.save_payload(held.replica, payload)
        self._replica_files.save(prepared)

    def give_back(self) -> None:
        """Gives back the leases that are not computed yet."""
        for held in self._list_uncomputed_replicas():
            self.give_up(held.lease, "leaving", failed=False)
            self._replica_files.forget(held.replica)

    def give_up(self, lease: Lease, reason: str, failed: bool, fault: StepFault | None = None) -> None:
        why = OWN_ROWS if on_own_rows(self._context, lease) else shorten_printable(reason, 500)
        returned = LeaseReturn(replica=lease.replica, fence=lease.fence, failed=failed, reason=why, fault=fault)
        self.given_up[lease.replica] = returned

    def _pause_leasing(self, seconds: float) -> None:
        self._rest_until = self._clock() + seconds
