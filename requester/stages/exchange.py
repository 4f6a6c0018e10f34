"""One poll: what the worker says is taken in, and what it does not know yet is told. The door is requester/api/work."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from sqlalchemy import and_, bindparam, exists, select
from sqlalchemy.orm import Session

from gradmarket.market.errors import Conflict, MarketError, NotFound
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, Hash, JobId, JobState, ReplicaId, ReplicaState, TaskId, TaskState
from gradmarket.market.wire import (
    Lease,
    OfferFields,
    PollAnswer,
    PollRequest,
    Refusal,
    UploadWanted,
    WaveOpened,
)
from gradmarket.requester.context import Context
from gradmarket.requester.stages import collect, handover, telling
from gradmarket.requester.store import money, progress
from gradmarket.requester.store.locks import locked, tasks_of
from gradmarket.requester.store.patience import patiently
from gradmarket.requester.store.session import ring
from gradmarket.requester.store.tables import Account, Job, Replica, Task, Wave, Worker

SEEN_S: Final = 5.0
"""A poll that changes nothing else is not written down more often: far less than a worker may be silent."""
Held = Sequence[tuple[Replica, Task]]
"""What the worker has not yet heard the end of."""
Guard = Callable[[Session], AbstractContextManager[object]]
"""Around the taking of one item."""


@patiently
def hear(context: Context, address: Address, said: PollRequest) -> PollAnswer:
    """Takes in what the worker says and tells what is new; an item that is refused leaves the others standing."""
    try:
        return _hear(context, address, said, nullcontext)
    except MarketError:  # refusals are rare: only for one is each item taken within a savepoint
        return _hear(context, address, said, Session.begin_nested)


def _hear(context: Context, address: Address, said: PollRequest, guard: Guard) -> PollAnswer:
    now = context.clock()
    with context.begin() as session:
        tasks_of(session, address, _named(said))
        worker = locked(session, Worker, address)
        held, lost = _with_forgotten(session, address, said, _held(session, address))
        if said.capacity or now - worker.seen_at > SEEN_S:  # who asks is written down anyway
            worker.seen_at = now
        worker.determinism_class = said.determinism_class
        worker.jobs, worker.least_price = list(said.jobs), said.min_price
        worker.least_prices = {str(job): units for job, units in said.min_prices.items()}
        refusals = [
            *lost,
            *_each(session, said.commitments, guard, lambda item: collect.commit(context, session, address, item)),
            *_each(session, said.reveals, guard, lambda item: collect.reveal(context, session, address, item)),
            *_each(session, said.given_up, guard, lambda item: collect.give_up(session, address, item)),
        ]
        held = _heard(held, said)
        worker.capacity = 0 if said.leaving else max(0, said.capacity - _unheard_leases(held, said))
        if worker.capacity:
            worker.asking_until = now + said.wait_s
        if said.leaving:
            for account in session.scalars(select(Account).where(Account.worker == address)):
                account.leaving = True
        if worker.capacity:
            _open_accounts(session, address, said.jobs)
            ring(session, "assign")
        session.flush()
        told = _told(context, session, address, said, held, now)
    return told.model_copy(update={"refusals": tuple(refusals)})


def _named(said: PollRequest) -> list[str]:
    """The replicas that it speaks of."""
    spoken = (said.commitments, said.reveals, said.given_up)
    return [item.replica for items in spoken for item in items]


def _each(session: Session, items: Sequence[Any], guard: Guard, take: Callable[[Any], None]) -> list[Refusal]:
    """Raises the first refusal where nothing guards the items."""
    refusals = []
    for item in items:
        try:
            with guard(session):
                take(item)
        except MarketError as error:
            if guard is nullcontext:
                raise
            refusals.append(Refusal(replica=item.replica, code=_code(error), detail=str(error)))
    return refusals


def _code(error: MarketError) -> str:
    codes = {collect.TooLate: "too_late", collect.TooEarly: "too_early", Conflict: "conflict", NotFound: "not_found"}
    return codes.get(type(error), "refused")


def _heard(held: Held, said: PollRequest) -> Held:
    """Marks what the worker knows the end of; the others."""
    for replica, _task in held:
        state = ReplicaState(replica.state)
        if lifecycle.over(state) and said.known.get(ReplicaId(replica.id)) == state:
            replica.heard = True
    return [(replica, task) for replica, task in held if not replica.heard]


def _unheard_leases(held: Held, said: PollRequest) -> int:
    """Leases whose answer was lost: the worker asks again for what it has already got."""
    return sum(
        replica.state == ReplicaState.LEASED and ReplicaId(replica.id) not in said.known for replica, _task in held
    )


def _open_accounts(session: Session, address: Address, jobs: Sequence[str]) -> None:
    """A worker that asks for work has an account in every running job: money is reserved into it ahead of the work.

    Where it names `jobs`, in those alone: what is reserved for it elsewhere would lie there for nothing.
    """
    own = exists().where(Account.job_id == Job.id, Account.worker == address, Account.leaving.is_(False))
    wanted = select(Job.id).where(Job.state == JobState.RUNNING, ~own).order_by(Job.id)
    for job_id in session.scalars(wanted.where(Job.id.in_(jobs)) if jobs else wanted).all():
        money.account(session, job_id, address).leaving = False
        ring(session, "settle")


_UNHEARD: Final = (
    select(Replica, Task)
    .join(Task, Task.id == Replica.task_id)
    .where(Replica.worker == bindparam("worker"), Replica.heard.is_(False))
)
"""Put together once: every poll asks it."""


def _held(session: Session, address: Address) -> Held:
    return [(replica, task) for replica, task in session.execute(_UNHEARD, {"worker": address})]


_OWN: Final = (
    select(Replica, Task)
    .join(Task, Task.id == Replica.task_id)
    .where(Replica.worker == bindparam("worker"), Replica.id.in_(bindparam("replicas", expanding=True)))
)


def _with_forgotten(session: Session, address: Address, said: PollRequest, held: Held) -> tuple[Held, list[Refusal]]:
    """Adds what the worker takes for open though it has heard the end: killed before it noted that, it is told again.

    What it takes for open and is not here, or not its own, it is told to forget.
    """
    open_ = {replica for replica, state in said.known.items() if not lifecycle.over(state)}
    astray = open_ - {ReplicaId(replica.id) for replica, _task in held}
    if not astray:
        return held, []
    found = [(replica, task) for replica, task in session.execute(_OWN, {"worker": address, "replicas": astray})]
    for replica, _task in found:
        replica.heard = False
    lost = sorted(astray - {ReplicaId(replica.id) for replica, _task in found} - set(_named(said)))
    detail = "you hold no such replica"
    return [*held, *found], [Refusal(replica=replica, code="not_found", detail=detail) for replica in lost]


def answer(context: Context, address: Address, said: PollRequest, final: bool = False) -> PollAnswer:
    """What the rows hold that the worker does not know; `final` adds why there is no lease."""
    now = context.clock()
    with context.reading() as session:
        told = _told(context, session, address, said, _held(session, address), now)
        waiting = progress.why_no_lease(session, address, context.settings.max_strikes, now) if final else ""
    return told.model_copy(update={"waiting": waiting})


def addressed(context: Context) -> Sequence[str]:
    """Workers with a replica whose end they have not heard."""
    with context.reading() as session:
        return session.scalars(select(Replica.worker).where(Replica.heard.is_(False)).distinct()).all()


def _told(
    context: Context, session: Session, address: Address, said: PollRequest, held: Held, now: float
) -> PollAnswer:
    leases, uploads, verdicts = [], [], []
    jobs_paid = dict.fromkeys(said.vouchers_for)
    waves = _waves(session, [(replica, task) for replica, task in held if _opened(replica, task)])
    for replica, task in held:
        state = ReplicaState(replica.state)
        if state == ReplicaState.AGREE and task.uploader == replica.id:
            uploads.append(_upload(context, session, replica, task, now))
        if said.known.get(ReplicaId(replica.id)) == state:
            continue
        if state == ReplicaState.LEASED:
            leases.append(_lease(replica, task, now))
        elif state == ReplicaState.AGREE or lifecycle.over(state):
            verdicts.append(telling.verdict(replica, task))
            if state in lifecycle.PAID:
                jobs_paid[JobId(task.job_id)] = None
    vouchers = [told for job_id in jobs_paid if (told := telling.voucher(session, job_id, address))]
    return PollAnswer(
        leases=tuple(leases),
        waves=waves,
        uploads=tuple(uploads),
        verdicts=tuple(verdicts),
        vouchers=tuple(vouchers),
    )


def news(told: PollAnswer) -> bool:
    """Whether it is worth answering now."""
    return bool(told.leases or told.waves or told.uploads or told.verdicts or told.vouchers or told.refusals)


def _lease(replica: Replica, task: Task, now: float) -> Lease:
    return Lease(
        replica=ReplicaId(replica.id),
        task=TaskId(task.id),
        job=JobId(task.job_id),
        fence=replica.fence,
        seconds=replica.lease_until - now,
        offer=OfferFields.model_validate(task.offer),
        signature=task.offer_signature,
    )


def _upload(context: Context, session: Session, replica: Replica, task: Task, now: float) -> UploadWanted:
    seconds = (task.due_at or now) - now
    door = handover.door(context, session, replica, task, seconds)
    return UploadWanted(replica=ReplicaId(replica.id), seconds=seconds, door=door)


def _opened(replica: Replica, task: Task) -> bool:
    return replica.state == ReplicaState.COMMITTED and task.state == TaskState.REVEALING


def _waves(session: Session, opened: Held) -> tuple[WaveOpened, ...]:
    """Each with all that committed to it."""
    if not opened:
        return ()
    closed = select(Wave, Replica.worker, Replica.sealed).join(
        Replica, and_(Replica.task_id == Wave.task_id, Replica.wave == Wave.number, Replica.sealed.is_not(None))
    )
    waves: dict[tuple[str, int], Wave] = {}
    members: defaultdict[tuple[str, int], list[tuple[Address, Hash]]] = defaultdict(list)
    for wave, worker, sealed in session.execute(closed.where(Wave.task_id.in_([task.id for _, task in opened]))):
        place = wave.task_id, wave.number
        waves[place] = wave
        members[place].append((Address(worker), Hash(sealed or b"")))
    return tuple(
        _wave(replica, waves[place], members[place]) for replica, task in opened if (place := (task.id, task.wave))
    )


def _wave(replica: Replica, wave: Wave, members: list[tuple[Address, Hash]]) -> WaveOpened:
    return WaveOpened(
        replica=ReplicaId(replica.id),
        wave=wave.number,
        secret=wave.secret,
        commitments=tuple(sorted(members)),
        signature=wave.signature,
    )
