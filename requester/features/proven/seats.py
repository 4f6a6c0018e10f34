"""The workers that are proven and present, and when each had a seat, for market.features.proven.seat_rules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, bindparam, exists, func, or_, select

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.features.proven.seat_rules import LeftPlace
from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import Candidate, Mixable, Opening, Party
from gradmarket.market.rules.lifecycle import PAID, SILENT
from gradmarket.market.rules.newcomers import choose_filling_parties, compute_watched_s
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import Address, AuditState, JobId, ReplicaState, TaskState, Units
from requester.features import reputation as reputations
from requester.features.audits.audit_tables import Audit
from requester.store import jobs, workers
from requester.store.among import is_in_bound_list
from requester.store.tables import Account, Job, Replica, Reputation, Round, Task, Worker
from requester.store.work import RowReader

SEATED: Final = (ReplicaState.LEASED, ReplicaState.COMMITTED)
PACED: Final = 64
"""Newest answers of a class that determine its pace."""
MOST: Final = 512
"""Most audited answers that are measured, the newest first."""


def load_standings(reader: RowReader, job: Job, candidates: Iterable[Candidate], now: float) -> dict[Address, float]:
    """Returns each candidate's standing in its own class, by its operator's record."""
    known = list(candidates)
    records = reputations.load_standings(reader, job, {one.party.operator for one in known}, now)
    return {one.party.worker: records.get((one.party.operator, one.determinism_class), 0.0) for one in known}


def list_proven_parties(
    reader: RowReader, job: Job, mixable: Mixable, proof: int, now: float
) -> dict[str, list[Party]]:
    """Returns a worker of each proven operator, by class, that has money reserved in the job and is there for it.

    Such a worker has room, or is at work, or was so a moment ago: one that asks for nothing keeps no seat from others.
    """
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    since = {"since": now - workers.HERE_S}
    rows = reader.session.execute(_PRESENT, workers.asked_of(job, now, beside) | since).all()
    records = reputations.load_standings(reader, job, {row.operator for row in rows}, now)
    by_class: dict[str, list[Party]] = {}
    for row in rows:
        if proven.is_proven(records.get((row.operator, row.determinism_class), 0.0), proof):
            by_class.setdefault(row.determinism_class, []).append(workers.build_party(row))
    return {name: seat_rules.list_operators(parties) for name, parties in by_class.items()}


def count_proven(reader: RowReader, job: Job, mixable: Mixable, now: float, most: int) -> int:
    """Returns how many separate proven parties are present of that class of the job that has most, up to `most`."""
    present = list_proven_parties(reader, job, mixable, jobs.load_spec(job).proof or 0, now)
    return max(count_separate(job, present, most).values(), default=0)


def count_separate(job: Job, present: Mapping[str, Iterable[Party]], most: int) -> dict[str, int]:
    """Returns how many of the parties of each class are separate ones under the job's rule, up to `most`."""
    nothing = Opening(JobId(job.id), frozenset(), (), "", Units(0), jobs.load_spec(job).separation)
    return {name: len(choose_filling_parties(parties, nothing, most)) for name, parties in present.items()}


def pays_hidden_seat(reader: RowReader, job: Job, number: int) -> bool:
    """Returns whether the deposit pays for one seat more, besides all votes from round `number` on."""
    spec = jobs.load_spec(job)
    places = (spec.sizes.all - spec.sizes.before(number)) * spec.replication.replicas + 1
    return job.deposited - jobs.sum_earned_units(reader, job.id) >= places * jobs.compute_reserve_per_gradient(job)


_RECORDED: Final = exists().where(Reputation.operator == Worker.operator, Reputation.determinism_class == workers.CLASS)
_JUST_OVER: Final = exists().where(
    Replica.worker == Worker.address,
    Replica.job_id == bindparam("job"),
    Task.id == Replica.task_id,
    Task.ended_at > bindparam("since"),
)
"""Its seat ended a moment ago, and the poll that asks for the next one is on its way."""
_PRESENT: Final = workers.PRESENT.where(
    or_(and_(workers.HERE, or_(Worker.capacity > 0, _JUST_OVER)), workers.BUSY), workers.COVERED, _RECORDED
)


def list_seated_operators(reader: RowReader, job: Job) -> set[str]:
    """Returns the operators that have a seat of the job, also those whose worker is not present any more."""
    return set(reader.session.scalars(_SEATED, {"job": job.id}))


_SEATED: Final = select(Replica.operator).where(Replica.job_id == bindparam("job"), Replica.state.in_(SEATED))


def list_waiting_workers(reader: RowReader, job: Job, candidates: Iterable[Candidate], now: float) -> set[Address]:
    """Returns the candidates that have a seat of the job, or whose next turn has not come."""
    known = {one.party.worker: one for one in candidates}
    rows = reader.session.execute(_LAST, {"job": job.id, "workers": list(known)}).all()
    by_class, by_worker = dict[str, list[float]](), dict[str, list[float]]()
    for worker, name, start, end in reader.session.execute(_PACES, {"job": job.id}) if rows else ():
        seconds = max(0.0, (end or start) - start)
        by_class.setdefault(name, []).append(seconds)
        by_worker.setdefault(worker, []).append(seconds)
    paces = AuditedPaces(by_class, by_worker)
    return {
        worker
        for worker, leased_at, seated in rows
        if seated or paces.compute_next_turn(worker, known[worker].determinism_class, leased_at) > now
    }


_LAST: Final = (
    select(
        Replica.worker,
        func.max(Replica.leased_at),
        func.count().filter(Replica.state.in_(SEATED)),
    )
    .where(Replica.job_id == bindparam("job"), is_in_bound_list(Replica.worker, "workers"))
    .group_by(Replica.worker)
)


@dataclass(frozen=True, slots=True)
class AuditedPaces:
    """Seconds from a seat to its commitment of audited right answers, by class and by worker."""

    by_class: Mapping[str, list[float]]
    by_worker: Mapping[str, list[float]]

    def compute_next_turn(self, worker: str, determinism_class: str, leased_at: float) -> float:
        of_class, own = self.by_class.get(determinism_class, []), self.by_worker.get(worker, [])
        return seat_rules.compute_next_turn(leased_at, of_class, own)


_PACES: Final = (
    select(Replica.worker, Replica.determinism_class, Replica.leased_at, Replica.committed_at)
    .join(Audit, Audit.task_id == Replica.task_id)
    .where(
        Audit.job_id == bindparam("job"),
        Audit.state == AuditState.PASSED,
        Replica.root == Audit.root,
        Replica.committed_at.is_not(None),
    )
    .order_by(Replica.leased_at.desc())
    .limit(MOST)
)


def count_newcomers_tasks(reader: RowReader, job: Job, number: int, now: float) -> int:
    """Returns how many attempts at tasks of the round newcomers decide, or decided, alone."""
    rows = reader.session.execute(_ALONE, {"job": job.id, "round": number}).all()
    records = reputations.load_standings(reader, job, {row.operator for row in rows}, now) if rows else {}
    proof = jobs.load_spec(job).proof or 0
    fresh = (row for row in rows if not proven.is_proven(records.get((row.operator, row.name), 0.0), proof))
    return len({row.id for row in fresh})


def find_last_alert_round(reader: RowReader, job: Job) -> int:
    """Returns seat_rules.find_last_alert_round of the audits that revoked an accepted answer; -1 where none did."""
    lie, found_at = reader.session.execute(_LIES, {"job": job.id}).one()
    if found_at is None:
        return -1
    found = reader.session.scalar(_BEGUN, {"job": job.id, "at": found_at})
    return seat_rules.find_last_alert_round(lie, max(lie, found or 0))


_BEGUN: Final = (
    select(Task.round)
    .where(Task.job_id == bindparam("job"), Task.created_at <= bindparam("at"))
    .order_by(Task.round.desc())
    .limit(1)
)
_LIES: Final = (
    select(func.max(Audit.round), func.max(Audit.ended_at))
    .join(Task, Task.id == Audit.task_id)
    .where(Audit.job_id == bindparam("job"), Audit.state == AuditState.FAILED, Task.state == TaskState.REVOKED)
)


def compute_round_s(reader: RowReader, job: Job, number: int) -> float:
    """Returns the seconds from a round's opening to its last answer; 0 where it has none."""
    return reader.session.scalar(_ROUND_S, {"job": job.id, "round": number}) or 0.0


_ROUND_S: Final = (
    select(func.max(Task.ended_at) - Round.opened_at)
    .select_from(Task)
    .join(Round, and_(Round.job_id == Task.job_id, Round.number == Task.round))
    .where(Task.job_id == bindparam("job"), Task.round == bindparam("round"), Task.root.is_not(None))
    .group_by(Round.opened_at)
)


def list_paces(reader: RowReader, job: Job, determinism_class: str) -> list[float]:
    """Returns the seconds from seats to commitments of the newest paid answers of a class."""
    return list(reader.session.scalars(_PAID_PACES, {"job": job.id, "class": determinism_class}))


_PAID_PACES: Final = (
    select(Replica.committed_at - Replica.leased_at)
    .where(
        Replica.job_id == bindparam("job"),
        Replica.determinism_class == bindparam("class"),
        Replica.state.in_(PAID),
        Replica.committed_at.is_not(None),
    )
    .order_by(Replica.leased_at.desc())
    .limit(PACED)
)


def list_left_places(reader: RowReader, job: Job, since: float) -> list[LeftPlace]:
    """Returns the places that workers which earned nothing in the job got from `since` on, and left or gave back.

    Also those that a proven one took over.
    """
    return [LeftPlace(*row) for row in reader.session.execute(_LEFT, {"job": job.id, "since": since})]


def list_watched_places(reader: RowReader, job: Job, now: float) -> list[LeftPlace]:
    """Returns those left places that count now."""
    return list_left_places(reader, job, now - compute_watched_s(jobs.load_spec(job).deadlines.lease_s))


IS_ALONE: Final = Task.plan["first_wave"].as_integer() == 1
"""Condition: one worker decides the task alone."""
_LEFT: Final = (
    select(Replica.leased_at, Replica.operator, Replica.network)
    .join(Account, and_(Account.job_id == Replica.job_id, Account.worker == Replica.worker))
    .join(Task, Task.id == Replica.task_id)
    .where(
        Replica.job_id == bindparam("job"),
        or_(
            Replica.state.in_((*SILENT, ReplicaState.ERROR)),
            and_(Replica.state == ReplicaState.NOT_NEEDED, Replica.expected_at.is_not(None), Task.backups > 0),
        ),
        Replica.leased_at >= bindparam("since"),
        Account.earned == 0,
    )
)
_ALONE: Final = (
    select(Task.id, Replica.operator, Replica.determinism_class.label("name"))
    .join(Replica, Replica.task_id == Task.id)
    .where(Task.job_id == bindparam("job"), Task.round == bindparam("round"), IS_ALONE)
)
