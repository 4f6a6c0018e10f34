"""Handles polls: takes the items that workers send, and answers with their news. The route is in api.worker_routes."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from gradmarket.market.errors import Conflict, MarketError, NotFound
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, Digest, ReplicaId, ReplicaState
from gradmarket.market.wire.poll import (
    Answer,
    CommitmentRequest,
    LeaseReturn,
    PollAnswer,
    RefusedItem,
    Reveal,
)
from requester.context import Context
from requester.exchange import acceptance, commitments, outbox
from requester.exchange.outbox import Poll
from requester.moves import blob_cleanup, judging, waves
from requester.notifier import worker_topic
from requester.store import accounts, in_hand, unheard
from requester.store.in_hand import ReplicaInHand, TaskInHand
from requester.store.locks import retry_on_conflict
from requester.store.tables import Worker
from requester.store.unheard import Held
from requester.store.work import Work
from requester.store.workers import HERE_S, LIVE_S

SEEN_S: Final = 5.0
"""Seconds after which a poll that changes nothing else is recorded again; far less than a worker may be silent."""
UNWRITTEN: Final = 0.25
"""Part of a wait by which a busy worker's end of asking may lag behind: its row is not written for less."""


def handle_polls(context: Context, polls: Sequence[Poll]) -> list[PollAnswer]:
    """Handles the polls in one transaction; returns each worker's news, in the order of the polls.

    A refused item does not affect the others: each item is checked completely before any of it is written.
    """
    answers, unused = _handle_polls_in_tx(context, polls)
    for digest in unused:
        blob_cleanup.drop_payload_if_unneeded(context, digest)
    return answers


@retry_on_conflict
def _handle_polls_in_tx(context: Context, polls: Sequence[Poll]) -> tuple[list[PollAnswer], list[Digest]]:
    """Returns the answers, and stored payloads that nothing refers to."""
    now = context.clock()
    deliveries = [delivery for poll in polls for delivery in poll.deliveries]
    with context.begin() as work:
        addresses = {poll.worker for poll in polls}
        named = [item.replica for poll in polls for item in poll.items]
        own = in_hand.of_replicas(work, addresses, named, to_pay=bool(deliveries))
        payees = acceptance.list_payees(deliveries, own)
        locked = accounts.lock_with_money(work, addresses | acceptance.list_newcomers(payees, own))
        intake = _Intake(context, work, own, {address: row.Worker for address, row in locked.items()})
        locked_accounts = acceptance.lock_payee_accounts(work, payees)
        held = unheard.load_held_replicas(work, addresses)
        refusals = [intake.take_poll(held, poll) for poll in polls]
        waves.handle_commitments(context, work, intake.committed.values())
        judging.judge_tasks(context, work, intake.revealed.values())
        late = acceptance.record_deliveries(context, work, own, locked_accounts, deliveries) if deliveries else {}
        for poll in polls:
            intake.record_capacity(held[poll.worker], poll, now)
        work.write_alike(intake.workers.values(), "seen_at", "capacity", "asking_until")
        # a draw costs more than a poll: a worker without reserved money that polls again waits for the next sweep
        money = [locked[address] for address in intake.asking]
        if intake.begun or any(row.covered and (row.open or work.shared) for row in money):  # others may open tasks now
            work.notify("assign")
        work.flush()
        if any(row.leaving for row in money):
            accounts.mark_leaving(work, intake.asking, leaving=False)
        hands = {known.hand.task.id: known.hand for known in own.values()}
        answers = outbox.build_poll_answers(context, work, polls, held, now, hands)
        work.topics.difference_update(map(worker_topic, addresses))  # their news is in the answers
        unused = acceptance.list_unused_payloads(deliveries, own)
    for poll, refused in zip(polls, refusals, strict=True):
        brought = {delivery.want.replica for delivery in poll.deliveries} & late.keys()
        refused += [build_refused_item(ReplicaId(replica), late[replica]) for replica in sorted(brought)]
    pairs = zip(answers, refusals, strict=True)
    return [answer.model_copy(update={"refusals": tuple(no)}) if no else answer for answer, no in pairs], unused


Item = TypeVar("Item", CommitmentRequest, Reveal, LeaseReturn, Answer)


class _Intake:
    """The items of all polls, and the work left to do for them together: changed tasks by id, and asking workers."""

    def __init__(
        self, context: Context, work: Work, own: Mapping[str, ReplicaInHand], workers: Mapping[Address, Worker]
    ) -> None:
        self.context, self.work, self.own, self.workers = context, work, own, workers
        self.committed: dict[str, TaskInHand] = {}
        self.revealed: dict[str, TaskInHand] = {}
        self.asking: list[Address] = []
        self.begun = False
        """Whether one of these did not ask a moment ago."""

    def each(
        self,
        worker: Address,
        items: Sequence[Item],
        take: Callable[[Context, Work, ReplicaInHand, Item], bool],
        changed: dict[str, TaskInHand],
    ) -> list[RefusedItem]:
        """Takes each item, adds the tasks that change to `changed`, and returns the refused items."""
        refusals = []
        for item in items:
            try:
                own = commitments.check_own_replica(self.own.get(item.replica), worker, item.replica, item.fence)
                if take(self.context, self.work, own, item):
                    changed[own.hand.task.id] = own.hand
            except MarketError as error:
                refusals.append(build_refused_item(item.replica, error))
        return refusals

    def take_poll(self, held: defaultdict[Address, Held], poll: Poll) -> list[RefusedItem]:
        """Takes one poll; returns its refused items."""
        address, request, work = poll.worker, poll.request, self.work
        # It may have crashed after it heard an end: replicas that it takes for open are news again. It is refused those
        # that do not exist or are not its own.
        open_ = {replica for replica, state in request.known.items() if not lifecycle.is_final_state(state)}
        astray = open_ - {ReplicaId(replica.id) for replica, _task in held[address]}
        again = unheard.list_own_replicas(work, address, astray) if astray else []
        for replica, _task in again:
            replica.heard = False
        own, found = [*held[address], *again], {ReplicaId(replica.id) for replica, _task in again}
        lost = sorted(astray - found - {item.replica for item in poll.items})
        worker = self.workers[address]
        worker.determinism_class, worker.memory = request.determinism_class, request.memory
        worker.jobs, worker.least_price = list(request.jobs), request.min_price
        worker.least_prices = {str(job): units for job, units in request.min_prices.items()}
        checked = {delivery.want.replica: delivery.want.answer for delivery in poll.deliveries}
        answered = partial(_record_answer, checked)
        refusals = [
            *poll.refused,
            *(RefusedItem(replica=one, code="not_found", detail="you hold no such replica") for one in lost),
            *self.each(address, request.commitments, commitments.record_commitment, self.committed),
            *self.each(address, request.reveals, commitments.record_reveal, self.revealed),
            *self.each(address, request.answers, answered, self.revealed),
            *self.each(address, request.given_up, commitments.return_lease, {}),
        ]
        for replica, _task in own:
            if lifecycle.is_final_state(replica.state) and request.known.get(ReplicaId(replica.id)) == replica.state:
                replica.heard = True
        held[address] = [(replica, task) for replica, task in own if not replica.heard]
        if request.leaving:
            accounts.mark_leaving(work, [address], leaving=True)
        return refusals

    def record_capacity(self, held: Held, poll: Poll, now: float) -> None:
        """Records the leases that the worker asks for. Its items for a replica that is not over keep a place."""
        worker, request = self.workers[poll.worker], poll.request
        brought = (self.own.get(part.replica) for part in request.payloads)
        unpaid = sum(own is None or own.replica.state not in lifecycle.PAID for own in brought)
        revealed = (self.own.get(reveal.replica) for reveal in request.reveals)
        unjudged = sum(own is None or not lifecycle.is_final_state(own.replica.state) for own in revealed)
        leased = [ReplicaId(replica.id) for replica, _task in held if replica.state == ReplicaState.LEASED]
        # it does not know these, since an answer was lost, and asks for them again
        unheard_leases = sum(replica not in request.known for replica in leased)
        room = request.capacity - unpaid - unjudged - unheard_leases
        worker.capacity = 0 if request.leaving else max(0, room)
        if worker.capacity or now - worker.seen_at > SEEN_S:  # the row of a worker that asks is written anyway
            worker.seen_at = now
        if worker.capacity:
            self.begun |= worker.asking_until < now - HERE_S
            self.asking.append(poll.worker)
        if worker.capacity or held:  # one that waits with work in hand may ask besides by a poll that does not wait
            wait_s = min(request.wait_s, LIVE_S)  # a longer wait is renewed while the worker is connected
            if worker.capacity or now + (1.0 - UNWRITTEN) * wait_s > worker.asking_until:
                worker.asking_until = max(worker.asking_until, now + wait_s)


def _record_answer(
    checked: Mapping[str, Answer | None], context: Context, work: Work, own: ReplicaInHand, answer: Answer
) -> bool:
    return commitments.record_answer(
        context, work, own, answer, signature_checked=checked.get(answer.replica) == answer
    )


def build_refused_item(replica: ReplicaId, error: MarketError) -> RefusedItem:
    codes = {
        commitments.TooLate: "too_late",
        commitments.TooEarly: "too_early",
        Conflict: "conflict",
        NotFound: "not_found",
    }
    return RefusedItem(replica=replica, code=codes.get(type(error), "refused"), detail=str(error))
