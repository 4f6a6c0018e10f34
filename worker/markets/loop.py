"""The worker's state machine. One poll sends the work in flight and returns the changes.

Either side may repeat a message: `known` lists the states that this worker knows, the in-flight folder keeps the data
for reveals and uploads, and the accounts keep the money. The loop computes no task that `policy` refuses, reveals and
trusts nothing that `market.rules.proof` finds wrong, and writes a payload to disk before its commitment.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from typing import Final

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.rules.classes import round_memory
from gradmarket.market.rules.lifecycle import PAID
from gradmarket.market.terms import ReplicaId, ReplicaState
from gradmarket.market.wire import SKETCH_TENSORS
from gradmarket.market.wire.poll import MAX_WAIT_S, PollAnswer, PollRequest, Reveal, SignedVerdict
from worker.markets.background import LeaseComputation, WaitingPoll, first_of, in_thread, list_request_entries
from worker.markets.leasing import FIRST_REST_S, Leasing
from worker.markets.sending import Sending
from worker.markets.verdict_log import VerdictLog
from worker.markets.worker_context import WorkerContext
from worker.protocol import records
from worker.protocol.in_flight import InFlight, InFlightFolder

AT_ONCE: Final = 128
"""The most items of each kind that are taken from one response; the market sends the others again."""
BUSY_WAIT_S: Final = 20.0
"""Seconds of the longest poll with work in flight, and of the first idle one: its end reports why no work comes."""
PAUSED_WAIT_S: Final = 10.0
"""Seconds of the longest poll while the owner's rules keep the worker from taking tasks."""
FIRST_BREATH_S: Final = 0.05
LONGEST_BREATH_S: Final = 5.0
"""Seconds between polls that returned at once and brought nothing new."""
ANSWERED: Final = frozenset({ReplicaState.AGREE, ReplicaState.REJECTED, *PAID})
"""States that a replica has only where its worker revealed an answer."""
SHORT_STEP_S: Final = 1.0
"""Seconds of a step's computation before a poll waits beside it: most such polls carry no news."""


class Loop:
    """Polls one market and acts on its responses. `replica_files` holds the replicas in flight.

    `beside`: computes in a thread, and reveals, uploads and takes leases meanwhile; else between two polls.
    """

    def __init__(
        self,
        context: WorkerContext,
        replica_files: InFlightFolder,
        clock: Callable[[], float] = time.time,
        beside: bool = False,
        computations: Sequence[LeaseComputation] = (),
    ) -> None:
        self._context = context
        self._replica_files = replica_files
        self._verdict_log = VerdictLog(context, replica_files, clock)
        self._clock = clock
        self._leasing = Leasing(context, replica_files, clock, computations)
        self._beside = beside
        self._waiting: WaitingPoll | None = None
        self._sending = Sending(context, replica_files, self._leasing, clock)
        self._heard: dict[ReplicaId, ReplicaState] = {}
        self._remarked: set[ReplicaId] = set()
        self._twin = False
        self._breath = FIRST_BREATH_S
        self._patience = BUSY_WAIT_S

    @property
    def busy(self) -> bool:
        """Returns whether a replica has no final verdict yet."""
        return bool(self._replica_files.open())

    @property
    def owes_word(self) -> bool:
        """Returns whether a further poll must report something, though nothing is in flight."""
        return bool(self._leasing.given_up or self._heard or self._replica_files.held)

    def turn(self, leaving: bool = False, wait_s: float | None = None, room: int | None = None) -> bool:
        """Does one poll and everything that follows from it; returns False if it brought nothing new.

        `room` limits the further leases that it may request; without it, only this worker's limits apply.
        """
        self._context.account_store.save()
        self._replica_files.clear()
        started = time.monotonic()
        room = 0 if leaving else room
        changed = self._poll_and_apply(leaving, self._context.settings.wait_s if wait_s is None else wait_s, room)
        changed |= self._leasing.compute_beside() if self._beside else self._leasing.compute()
        self._pause_without_news(changed, time.monotonic() - started)
        return changed

    def _poll_and_apply(self, leaving: bool, wait_s: float, room: int | None) -> bool:
        """Polls, and acts on the answer. While a lease is computed, a poll waits for news in a thread.

        Messages that arise meanwhile go into another poll, which does not wait. A short step needs no poll at all.
        """
        sending = self._sending.chosen()
        if sending or (not self._leasing.steps and self._waiting is None):
            request = self._build_poll_request(leaving, wait_s if self._waiting is None else 0.0, room, sending)
            return self._apply_poll_answer(*self._send_poll(request, leaving), leaving)
        waiting = self._waiting
        if waiting is None or not waiting.future.done():
            request = self._build_poll_request(leaving, wait_s if waiting is None else 0.0, room)
            speaks = request.capacity or request.leaving or request.vouchers_for or list_request_entries(request)
            only_computes = waiting is None and not speaks and len(self._replica_files.open()) == 1
            if only_computes and first_of(*self._leasing.steps.values(), within=SHORT_STEP_S):
                return False
            if waiting is None:
                waiting = WaitingPoll(in_thread("poll", partial(self._context.market.poll, request)), request)
                self._waiting = waiting
            elif not waiting.covers(request):
                return self._apply_poll_answer(request, self._context.market.poll(request), leaving)
            with self._context.signals.allow_interruption() if self._is_idle_poll(request, leaving) else nullcontext():
                first_of(waiting, *self._leasing.steps.values())
        if not waiting.future.done():
            return False
        self._waiting = None
        return self._apply_poll_answer(waiting.of, waiting.future.result(), leaving)

    def _apply_poll_answer(self, request: PollRequest, answer: PollAnswer, leaving: bool) -> bool:
        """Applies the received parts of the request, then the market's answer."""
        changed = self._apply_confirmed_request(request, answer)
        return self._apply_answer(answer, leaving) or changed

    def _pause_without_news(self, changed: bool, seconds: float) -> None:
        """Pauses if the market answers at once without news, so that it does not keep this machine busy."""
        if changed:
            self._breath, self._patience = FIRST_BREATH_S, BUSY_WAIT_S
            return
        self._patience = min(2 * self._patience, MAX_WAIT_S)
        for held in self._replica_files.open():  # the owner should know why no other work comes
            overdue = self._clock() > held.due_at
            if held.state is not ReplicaState.LEASED and overdue and held.replica not in self._remarked:
                self._remarked.add(held.replica)
                text = f"Still no verdict on {held.replica} ({held.state}); it holds a place until there is one."
                self._context.journal.report("overdue", text, replica=held.replica, state=held.state)
        if seconds < self._breath:
            self._context.signals.pause(self._breath)
            self._breath = min(LONGEST_BREATH_S, 2 * self._breath)

    def leave_now(self) -> None:
        """Gives back the leases that are not computed yet, in one last poll without waiting."""
        self._leasing.give_back()
        given_up = tuple(self._leasing.given_up.values())
        self._context.market.poll(PollRequest(given_up=given_up, leaving=True, wait_s=0.0))

    def _build_poll_request(
        self, leaving: bool, wait_s: float, room: int | None, sending: Sequence[InFlight] = ()
    ) -> PollRequest:
        held = self._replica_files.open()
        reveals = _at_once([reveal for one in held if (reveal := one.reveal())])
        ending = len(sending) + len({reveal.replica for reveal in reveals} - {one.replica for one in sending})
        capacity = self._leasing.capacity(ending)
        alone = [one for one in held if (spec := self._context.spec(one.lease.job)) and spec.decided_alone]
        return PollRequest(
            determinism_class=self._context.determinism_class,
            capacity=capacity if room is None else min(room + ending, capacity),
            commitments=tuple(commitment for one in held if one not in alone and (commitment := one.commitment())),
            answers=tuple(answer for one in alone if (answer := one.answer()))[:AT_ONCE],
            payloads=self._sending.parts(sending),
            reveals=reveals,
            given_up=tuple(self._leasing.given_up.values()),
            known={**{one.replica: one.state for one in self._replica_files.held.values()}, **self._heard},
            vouchers_for=self._context.jobs_to_ask_about(leaving),
            jobs=tuple(sorted(self._context.limits.jobs)),
            min_price=self._context.least_units,
            min_prices=self._context.least_by_job,
            attending=tuple(sorted(self._context.attending)),
            memory=round_memory(self._context.limits.max_memory),
            leaving=leaving,
            wait_s=self._at_most(wait_s, leaving),
        )

    def _at_most(self, wait_s: float, leaving: bool) -> float:
        """Limits the wait while something is in flight or owed, and after waits in vain."""
        if self._leasing.resting:
            return min(wait_s, FIRST_REST_S)
        if self._leasing.paused:
            return min(wait_s, PAUSED_WAIT_S)
        owed = any(account.redeemable or account.unpaid for account in self._context.accounts())
        return min(wait_s, BUSY_WAIT_S if leaving or owed or self._replica_files.open() else self._patience)

    def _send_poll(self, request: PollRequest, leaving: bool) -> tuple[PollRequest, PollAnswer]:
        """Returns the request as sent, without the payloads if they cannot be sent, and the answer."""
        if request.payloads:
            try:
                return request, self._context.market.poll(request, self._sending.payloads(request))
            except (ServiceProblem, OSError) as problem:
                self._sending.failed(request, problem)
                request = request.model_copy(update={"payloads": (), "wait_s": 0.0, "capacity": 0})
        with self._context.signals.allow_interruption() if self._is_idle_poll(request, leaving) else nullcontext():
            return request, self._context.market.poll(request)

    def _is_idle_poll(self, request: PollRequest, leaving: bool) -> bool:
        return not (leaving or request.commitments or request.reveals or self._replica_files.open())

    def _apply_confirmed_request(self, request: PollRequest, answer: PollAnswer) -> bool:
        """Applies the request's received parts: updates committed and revealed replicas, and forgets finished ones."""
        refused = {refusal.replica for refusal in answer.refusals}
        for held in list(self._replica_files.held.values()):
            if not held.open and request.known.get(held.replica) == held.state:
                self._replica_files.forget(held.replica)
        for replica in request.known.keys() & self._heard.keys():
            del self._heard[replica]
        for returned in request.given_up:
            self._leasing.given_up.pop(returned.replica, None)
        leased, committed = ReplicaState.LEASED, ReplicaState.COMMITTED
        confirmed = [(commitment.replica, leased, committed) for commitment in request.commitments]
        confirmed += [(reveal.replica, committed, ReplicaState.REVEALED) for reveal in request.reveals]
        confirmed += [(answer.replica, leased, ReplicaState.REVEALED) for answer in request.answers]
        for replica, before, after in confirmed:
            known = self._replica_files.held.get(replica)
            if replica not in refused and known is not None and known.state is before:
                self._replica_files.put(known, state=after, opened=known.opened or after is ReplicaState.REVEALED)
        self._sending.note_confirmed_payloads(request, refused)
        for refusal in answer.refusals[:AT_ONCE]:
            if refusal.replica in self._replica_files.held:
                self._refused(refusal.replica, refusal.code, refusal.detail)
        has_entries = request.commitments or request.reveals or request.answers or request.payloads or request.given_up
        return bool(has_entries) and not refused

    def _refused(self, replica: ReplicaId, code: str, detail: str) -> None:
        """Forgets a replica whose commitment was refused; after a refused reveal, waits for the verdict.

        A replica that the market does not have is forgotten too, unless the market promised pay for it: that is
        evidence.
        """
        self._context.journal.once("refused", f"The market refused {replica}: {detail}", replica=replica, code=code)
        if code == "conflict":
            self._report_twin(replica)
        held = self._replica_files.held[replica]
        if not held.promised and (held.state is ReplicaState.LEASED or code == "not_found"):
            self._replica_files.forget(replica)
        elif not held.promised:
            self._replica_files.put(held, opened=False)

    def _apply_answer(self, answer: PollAnswer, leaving: bool) -> bool:
        """Applies a response. Leases come last: verdicts and payments in the same response make room for them."""
        changed = [self._verdict_log.wave(opened) for opened in answer.waves[:AT_ONCE]]
        for message in answer.verdicts[:AT_ONCE]:
            changed.append(self._verdict_log.verdict(message))
            if message.replica not in self._replica_files.held:
                self._check_twin(message)
                self._heard[message.replica] = message.state
        changed += [self._verdict_log.voucher(message) for message in answer.vouchers[:AT_ONCE]]
        changed += [self._sending.record_request(request) for request in answer.uploads[:AT_ONCE]]
        changed += [self._leasing.take(lease, leaving) for lease in answer.leases[:AT_ONCE]]
        self._context.attending.intersection_update(one.replica for one in self._replica_files.open())
        self._context.attending.update(answer.hearings[:AT_ONCE])
        self._context.unused = dict(list(answer.unused.items())[:AT_ONCE])
        if answer.waiting:
            self._context.journal.once("waiting", f"Waiting: {answer.waiting}.")
        return any(changed)

    def _check_twin(self, message: SignedVerdict) -> None:
        """Logs an answered replica that this folder neither holds nor has a record of."""
        if message.replica in self._heard or message.state not in ANSWERED:
            return
        context = self._context
        if records.find_newest_record(context.settings.data, context.domain, message.replica) is None:
            self._report_twin(message.replica)

    def _report_twin(self, replica: ReplicaId) -> None:
        if not self._twin:
            self._twin = True
            text = (
                f"{replica} was answered with this wallet, and not from {self._context.settings.data}: is a copy of "
                "the folder at work, or was it restored? Two of one wallet spoil each other's answers. Stop one of "
                "them, and start it with a folder of its own (--data)."
            )
            self._context.journal.report("twin", text, replica=replica)


def _at_once(reveals: Sequence[Reveal]) -> tuple[Reveal, ...]:
    """Returns the first reveals whose sketches fit into one request; the others go into the next."""
    sizes = list(accumulate(len(reveal.sketch.numbers) if reveal.sketch else 0 for reveal in reveals))
    return tuple(reveal for reveal, tensors in zip(reveals, sizes, strict=True) if tensors <= SKETCH_TENSORS)
