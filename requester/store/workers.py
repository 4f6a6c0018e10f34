"""Queries about workers: those present, those that ask for work, and their rights in a job.

The process that holds a worker's poll marks it as present meanwhile.
"""

from collections.abc import Collection, Sequence, Set
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Integer,
    String,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    or_,
    select,
    update,
)

from gradmarket.market.rules import assignment
from gradmarket.market.rules import classes as classes_rule
from gradmarket.market.rules.assignment import Candidate, Mixable, Party
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.rules.payment import AccountStanding
from gradmarket.market.rules.strikes import BARRED_S
from gradmarket.market.terms import REPRODUCIBLE, Address, ReplicaState, Units
from requester.store import jobs, strikes
from requester.store.among import NOW, is_in_bound_list
from requester.store.tables import Account, Holder, Job, Replica, Round, Task, Worker
from requester.store.work import RowReader, Work

LIVE_S: Final = 45.0
"""Seconds after which a silent worker counts as gone; waiting polls keep theirs present (mark_present)."""
HERE_S: Final = 3.0
"""Seconds after which an absent worker keeps no place from others; between two polls a worker is away for less."""
EVERYBODY: Final = 2**31 - 1
KNOWN: Final = Worker.accepted_at.is_not(None)


def build_party(row: Any) -> Party:
    """Returns the party of a worker's or a replica's row, or of a row of `present`."""
    address = row.worker if isinstance(row, Replica) else row.address
    return Party(Address(address), row.operator, row.payout, row.network)


def list_live_workers(reader: RowReader, now: float, most: int | None = None) -> Sequence[Worker]:
    """Returns the workers that were heard of within LIVE_S, at most `most` of them."""
    return reader.session.scalars(select(Worker).where(Worker.seen_at > now - LIVE_S).limit(most)).all()


def at_work(reader: RowReader, job_id: str, now: float) -> Sequence[Worker]:
    """Returns the live workers that hold a lease of the job that has not lapsed."""
    holds = exists().where(
        Replica.worker == Worker.address,
        Replica.job_id == job_id,
        Replica.state == ReplicaState.LEASED,
        Replica.lease_until > now,
    )
    return reader.session.scalars(select(Worker).where(Worker.seen_at > now - LIVE_S, holds)).all()


def list_live_earners(reader: RowReader, job: Job, now: float) -> Sequence[Worker]:
    """Returns the live workers that earned in the job and are not leaving."""
    staying = select(Worker).join(Account, Account.worker == Worker.address).where(Account.leaving.is_(False))
    theirs = staying.where(Account.job_id == job.id, Account.earned > 0, Worker.seen_at > now - LIVE_S)
    return reader.session.scalars(theirs).all()


_NAMED_JOBS: Final = cast(Worker.jobs, String)
PRICE: Final = bindparam("price", type_=BigInteger)
_ITS_LEAST: Final = Worker.least_prices[bindparam("job_key", type_=JSON.JSONStrIndexType())].as_float()
_TAKES_PART: Final = exists().where(Holder.job_id == bindparam("job"), Holder.worker == Worker.address)
_TAKING_PART: Final = select(Holder.worker).where(
    Holder.job_id == bindparam("job"), is_in_bound_list(Holder.worker, "workers")
)
CONTENT: Final = (
    or_(bindparam("anybody", type_=Boolean), _TAKES_PART),
    or_(_NAMED_JOBS == "[]", _NAMED_JOBS.contains(bindparam("job"))),
    Worker.least_price <= PRICE,
    func.coalesce(_ITS_LEAST, 0.0) <= PRICE,
)
"""Conditions: the worker serves the job, for its price, and with rows of its own where the job is private."""
LIVE: Final = Worker.seen_at > NOW - LIVE_S
RESTS: Final = exists().where(
    Account.job_id == bindparam("job"), Account.worker == Worker.address, Account.rests_until > NOW
)
_FIT: Final = (~strikes.SUSPENDED, ~RESTS, ~strikes.BARRED)
"""Conditions: neither suspended nor barred, and not resting."""
_PROCESSOR: Final = func.substr(Worker.determinism_class, 1, len(classes_rule.PROCESSORS)) == classes_rule.PROCESSORS
"""No LIKE: its underscore is any letter, and SQLite's takes capitals."""
CLASS: Final = case(
    (and_(bindparam("reproducible", type_=Boolean), _PROCESSOR), REPRODUCIBLE),
    else_=Worker.determinism_class,
)
"""The worker's class in the job (rules.classes.find_class_in_job)."""
OF_CLASSES: Final = or_(
    and_(bindparam("any_class", type_=Boolean), Worker.determinism_class != ""),
    is_in_bound_list(CLASS, "classes"),
)
ASKS: Final = and_(Worker.asking_until > NOW, Worker.capacity > 0)
BUSY: Final = exists().where(
    Replica.worker == Worker.address, Replica.job_id == bindparam("job"), Replica.state.in_(IN_FLIGHT)
)
ASKING_NOW: Final = (ASKS, LIVE, *_FIT)
"""Conditions: the worker asks for a lease now and may get one of the job."""
COVERED: Final = exists().where(
    Account.job_id == bindparam("job"), Account.worker == Worker.address, Account.reserved - Account.earned > 0
)
"""Condition: the job has money reserved for the worker beyond its earnings."""
PRESENT: Final = select(
    CLASS.label("determinism_class"), Worker.address, Worker.operator, Worker.payout, Worker.network
).where(LIVE, *CONTENT, *_FIT, OF_CLASSES)
"""Class and party of every live worker that may be drawn for the job, or of those of some classes (`asked_of`).

A worker that names other jobs, or wants more than the job pays, is absent for it and keeps no place from others.
"""


def asked_of(job: Job, now: float, classes: Collection[str] | None = None) -> dict[str, Any]:
    """Returns the parameters of all these conditions; `classes` None: workers of any class count."""
    about = {"job": job.id, "job_key": job.id, "price": job.price, "now": now}
    spec = jobs.load_spec(job)
    about |= {"anybody": spec.repeatable, "reproducible": spec.reproducible}
    return about | {"any_class": classes is None, "classes": classes or ()}


def list_present_workers(
    reader: RowReader, job: Job, now: float, classes: Collection[str] | None = None
) -> Sequence[Any]:
    return reader.session.execute(PRESENT, asked_of(job, now, classes)).all()


def list_deciding_workers(
    reader: RowReader,
    job: Job,
    now: float,
    classes: Collection[str] | None = None,
    known: bool = False,
    most: int = EVERYBODY,
) -> Sequence[Any]:
    """Returns those of `present` that may decide the job's class: workers that delivered before, and newcomers that can
    be drawn now.

    A newcomer counts while it asks and has room, or holds a place of the job. One that never has room is never drawn,
    so it could name a class for ever at no risk. `known`: only workers that delivered before.
    """
    statement = _KNOWN if known else _DECIDING
    return reader.session.execute(statement, asked_of(job, now, classes) | {"most": most}).all()


_FEW: Final = bindparam("most", type_=Integer)
HERE: Final = or_(Worker.asking_until > NOW, Worker.seen_at > NOW - HERE_S)
HAS_ROOM_OR_PLACE: Final = or_(and_(HERE, Worker.capacity > 0), BUSY)
_KNOWN: Final = PRESENT.where(KNOWN).limit(_FEW)
_DECIDING: Final = PRESENT.where(or_(KNOWN, HAS_ROOM_OR_PLACE)).limit(_FEW)


def get_class(worker: Worker, job: Job) -> str:
    """Returns the worker's class in the job."""
    return classes_rule.find_class_in_job(worker.determinism_class, jobs.load_spec(job).reproducible)


def is_serving_job(worker: Worker, job_id: str) -> bool:
    """Whether the worker serves the job: it names the job, or it names none and serves every one."""
    return not worker.jobs or job_id in worker.jobs


def asks_of(worker: Worker, job: Job) -> Units:
    """Returns the least that the worker wants for a gradient of the job, in units."""
    return Units(max(worker.least_price, worker.least_prices.get(job.id, 0)))


def list_asking_workers(reader: RowReader, job: Job, mixable: Mixable, now: float) -> tuple[list[Worker], int]:
    """Returns the workers that ask for a lease now, may get one of the job, and have money reserved in it.

    Second, if there are any such workers, the count of `idle_elsewhere`.
    """
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    rows = reader.session.execute(_ASKING, asked_of(job, now, beside)).all()
    return [worker for worker, _silent in rows], rows[0][1] if rows else 0


def idle_elsewhere(reader: RowReader, job: Job, mixable: Mixable, now: float) -> int:
    """Counts live, idle workers of comparable classes with a reservation in the job that do not ask for work right now.

    A draw waits briefly for them.
    """
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    return reader.session.scalar(_SILENT, asked_of(job, now, beside)) or 0


_SILENT: Final = PRESENT.where(~ASKS, COVERED, ~BUSY).with_only_columns(func.count())
_ASKING: Final = select(Worker, _SILENT.correlate(None).scalar_subquery()).where(*ASKING_NOW, COVERED)


def list_account_standings(reader: RowReader, job: Job) -> dict[str, AccountStanding]:
    """Returns every worker's money in the job; open replicas with all that they may add."""
    stakes = dict(reader.session.execute(_AT_STAKE, {"job": job.id}).all())
    rows = reader.session.execute(_ACCOUNTS, {"job": job.id})
    return {row.worker: _build_standing(job, row, stakes.get(row.worker)) for row in rows}


def standings_of(reader: RowReader, job: Job, workers: Collection[str]) -> dict[str, AccountStanding]:
    """Returns the same of some workers."""
    return {row.worker: _build_standing(job, row, row.stake) for row in _accounts_of(reader, job, workers)}


def _build_standing(job: Job, row: Any, stake: Any) -> AccountStanding:
    """Builds a standing; `stake`: the most that the worker's open replicas may still earn at their rounds' prices."""
    added = int(stake or 0) * jobs.compute_reserve_per_gradient(job) // (job.price or 1)
    return AccountStanding(Units(row.reserved), Units(row.earned), Units(added), Units(row.waiting))


def _accounts_of(reader: RowReader, job: Job, workers: Collection[str]) -> Sequence[Any]:
    return reader.session.execute(_ACCOUNTS_AMONG, {"job": job.id, "workers": workers}).all()


_ACCOUNTS: Final = select(Account.worker, Account.reserved, Account.earned, Account.waiting).where(
    Account.job_id == bindparam("job")
)
_OPEN: Final = (
    select(func.sum(Round.price))
    .select_from(Replica)
    .join(Task, Task.id == Replica.task_id)
    .join(Round, and_(Round.job_id == Task.job_id, Round.number == Task.round))
    .where(Replica.job_id == bindparam("job"), Replica.state.in_(IN_FLIGHT))
)
_AT_STAKE: Final = _OPEN.with_only_columns(Replica.worker, func.sum(Round.price)).group_by(Replica.worker)
_STAKE: Final = _OPEN.where(Replica.worker == Account.worker, Replica.heard.is_(False)).correlate(Account)
_ACCOUNTS_AMONG: Final = _ACCOUNTS.add_columns(Account.rests_until, _STAKE.scalar_subquery().label("stake")).where(
    is_in_bound_list(Account.worker, "workers")
)


def list_barred_keys(reader: RowReader, workers: Sequence[Worker], now: float) -> set[str]:
    """Returns those of the workers' wallets and operators that are barred."""
    return strikes.barred_among(reader, assignment.list_answerable_keys(map(build_party, workers)), now - BARRED_S)


def build_candidates(
    reader: RowReader,
    job: Job,
    workers: Sequence[Worker],
    now: float,
    barred: Set[str] = frozenset(),
    suspended: Collection[str] = (),
) -> list[Candidate]:
    """Returns the workers as the job's draw sees them; `barred` (as above) and `suspended` mark some of them.

    The most that an answer may be paid over its price is set aside: a worker paid so takes one task in a draw.
    """
    named = [worker.address for worker in workers]
    accounts = _accounts_of(reader, job, named)
    money = {row.worker: _build_standing(job, row, row.stake) for row in accounts}
    resting = {row.worker for row in accounts if row.rests_until > now}
    nothing, taking_part = AccountStanding(Units(0), Units(0), Units(0)), None
    if not jobs.load_spec(job).repeatable:
        taking_part = set(reader.session.scalars(_TAKING_PART, {"job": job.id, "workers": named}))
    later = jobs.compute_reserve_per_gradient(job) - job.price
    return [
        Candidate(
            build_party(worker),
            get_class(worker, job),
            Units(max(0, money.get(worker.address, nothing).uncommitted - later)),
            worker.capacity,
            asks_of(worker, job),
            frozenset(worker.jobs),
            assignment.is_barred(build_party(worker), barred),
            worker.address in suspended,
            worker.address in resting,
            worker.accepted_at is not None,
            taking_part is None or worker.address in taking_part,
        )
        for worker in workers
    ]


_NAMED: Final = is_in_bound_list(Worker.address, "workers")
_UNLOCKED: Final = select(Worker.address).where(_NAMED).with_for_update(skip_locked=True, key_share=True)
"""Skips locked rows: the transaction that writes one has heard of its worker, and waiting for locks in no order would
deadlock.
"""
_HERE: Final = (
    update(Worker)
    .where(Worker.address.in_(_UNLOCKED))
    .values(seen_at=bindparam("now"), asking_until=bindparam("until"))
)
_GONE: Final = update(Worker).where(_NAMED).values(asking_until=0.0)


def mark_present(work: Work, addresses: Collection[str], now: float) -> None:
    """Marks workers as live and, where they have room, asking for work, both for LIVE_S from now on."""
    values = {"workers": addresses, "now": now, "until": now + LIVE_S}
    work.connection().execute(_HERE, values)


def mark_gone(work: Work, addresses: Collection[str]) -> None:
    """Marks workers as not asking: nothing is leased to them until they come again."""
    work.connection().execute(_GONE, {"workers": addresses})
