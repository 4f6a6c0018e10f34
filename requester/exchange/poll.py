"""Handles polls: takes what workers send, and answers what they do not know yet. The route is in api.worker_routes."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, select, update

from gradmarket.market.errors import Conflict, MarketError, NotFound
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, ReplicaId, ReplicaState
from gradmarket.market.wire import PollAnswer, PollRequest, RefusedItem
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import commitments, outbox
from gradmarket.requester.exchange.outbox import Held, Poll
from gradmarket.requester.moves import judging, waves
from gradmarket.requester.store.among import among
from gradmarket.requester.store.locks import locked_workers, tasks_of
from gradmarket.requester.store.retries import patiently
from gradmarket.requester.store.tables import Account, Replica, Task, Worker
from gradmarket.requester.store.work import RowReader, Work
from gradmarket.requester.store.workers import LIVE_S

SEEN_S: Final = 5.0
"""Seconds after which a poll that changes nothing else is recorded again; far less than a worker may be silent."""


@patiently
def hear(context: Context, polls: Sequence[Poll]) -> list[PollAnswer]:
    """Handles the polls in one transaction; returns what is new to each worker, in the order of the polls.

    A refused item does not affect the others: each item is checked completely before any of it is written.
    """
    now = context.clock()
    with context.begin() as work:
        addresses = {poll.worker for poll in polls}
        tasks_of(work, addresses, [item.replica for poll in polls for item in poll.items])
        workers = {worker.address: worker for worker in locked_workers(work, addresses)}
        held = outbox.held(work, addresses)
        taken = _Taken()
        refusals = [_take_in(context, work, workers[poll.worker], held, poll, taken, now) for poll in polls]
        waves.committed(context, work, list(taken.committed.values()))
        judging.advance(context, work, list(taken.revealed.values()))
        _stay(work, taken.asking)
        work.flush()
        answers = outbox.told(context, work, polls, held, now)
    return [answer.model_copy(update={"refusals": tuple(no)}) for answer, no in zip(answers, refusals, strict=True)]


class _Taken:
    """The work left to do for all polls together: changed tasks by their ids, and the workers that ask for work."""

    def __init__(self) -> None:
        self.committed: dict[str, Task] = {}
        self.revealed: dict[str, Task] = {}
        self.asking: list[Address] = []


def _take_in(
    context: Context,
    work: Work,
    worker: Worker,
    held: defaultdict[Address, Held],
    poll: Poll,
    taken: _Taken,
    now: float,
) -> list[RefusedItem]:
    """Takes one poll; returns its refused items."""
    address, said = poll.worker, poll.said
    held[address], lost = _with_forgotten(work, poll, held[address])
    _write_down(worker, said, now)
    refusals = [
        *lost,
        *_each(said.commitments, lambda item: commitments.commit(context, work, address, item), taken.committed),
        *_each(said.reveals, lambda item: commitments.reveal(context, work, address, item), taken.revealed),
        *_each(said.given_up, lambda item: commitments.give_up(context, work, address, item), {}),
    ]
    held[address] = _unheard(held[address], said)
    worker.capacity = 0 if said.leaving else max(0, said.capacity - _unheard_leases(held[address], said))
    if worker.capacity:
        worker.asking_until = now + min(said.wait_s, LIVE_S)  # a longer wait is renewed while the worker is connected
        taken.asking.append(address)
        work.notify("assign")
    if said.leaving:
        for account in work.session.scalars(select(Account).where(Account.worker == address)):
            account.leaving = True
    return refusals


def _write_down(worker: Worker, said: PollRequest, now: float) -> None:
    if said.capacity or now - worker.seen_at > SEEN_S:  # the row of a worker that asks is written anyway
        worker.seen_at = now
    worker.determinism_class = said.determinism_class
    worker.jobs, worker.least_price = list(said.jobs), said.min_price
    worker.least_prices = {str(job): units for job, units in said.min_prices.items()}


def _each(items: Sequence[Any], take: Callable[[Any], Task | None], changed: dict[str, Task]) -> list[RefusedItem]:
    """Takes each item, adds the tasks that change to `changed`, and returns the refused items."""
    refusals = []
    for item in items:
        try:
            task = take(item)
        except MarketError as error:
            refusals.append(RefusedItem(replica=item.replica, code=_code(error), detail=str(error)))
        else:
            changed.update({} if task is None else {task.id: task})
    return refusals


def _code(error: MarketError) -> str:
    codes = {
        commitments.TooLate: "too_late",
        commitments.TooEarly: "too_early",
        Conflict: "conflict",
        NotFound: "not_found",
    }
    return codes.get(type(error), "refused")


def _unheard(held: Held, said: PollRequest) -> Held:
    """Marks replicas whose end the worker knows as heard; returns the others."""
    for replica, _task in held:
        state = ReplicaState(replica.state)
        if lifecycle.over(state) and said.known.get(ReplicaId(replica.id)) == state:
            replica.heard = True
    return [(replica, task) for replica, task in held if not replica.heard]


def _unheard_leases(held: Held, said: PollRequest) -> int:
    """Counts leases that the worker does not know since an answer was lost: it asks again for what it already has."""
    return sum(
        replica.state == ReplicaState.LEASED and ReplicaId(replica.id) not in said.known for replica, _task in held
    )


def _stay(reader: RowReader, asking: Sequence[Address]) -> None:
    """Marks workers that ask for work again as not leaving."""
    if asking:
        reader.session.execute(_STAY, {"workers": asking})


_STAY: Final = (
    update(Account)
    .where(among(Account.worker, "workers"), Account.leaving.is_(True))
    .values(leaving=False)
    .execution_options(synchronize_session=False)
)
_OWN: Final = (
    select(Replica, Task)
    .join(Task, Task.id == Replica.task_id)
    .where(Replica.worker == bindparam("worker"), among(Replica.id, "replicas"))
)


def _with_forgotten(work: Work, poll: Poll, held: Held) -> tuple[Held, list[RefusedItem]]:
    """Adds replicas that the worker takes for open although it heard their end, since it may have crashed after that.

    Also returns refusals for replicas that it takes for open and that do not exist or are not its own.
    """
    open_ = {replica for replica, state in poll.said.known.items() if not lifecycle.over(state)}
    astray = open_ - {ReplicaId(replica.id) for replica, _task in held}
    if not astray:
        return held, []
    again = [
        (replica, task) for replica, task in work.session.execute(_OWN, {"worker": poll.worker, "replicas": astray})
    ]
    for replica, _task in again:
        replica.heard = False
    lost = sorted(astray - {ReplicaId(replica.id) for replica, _task in again} - {item.replica for item in poll.items})
    detail = "you hold no such replica"
    return [*held, *again], [RefusedItem(replica=replica, code="not_found", detail=detail) for replica in lost]
