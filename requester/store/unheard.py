"""Queries for poll answers: the news that a worker does not know yet. Each is built once, since every poll runs it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from sqlalchemy import Boolean, and_, bindparam, or_, select

from gradmarket.market.rules.lifecycle import is_final_state
from gradmarket.market.terms import Address, Hash, JobId, JobState
from gradmarket.market.wire.poll import UnusedReservation
from requester.store.among import NOW, is_in_bound_list
from requester.store.tables import Account, Job, Replica, Task, Wave
from requester.store.work import RowReader

Held = list[tuple[Replica, Task]]
"""A worker's replicas, with their tasks, whose end the worker does not know yet."""


def load_held_replicas(reader: RowReader, workers: Collection[Address]) -> defaultdict[Address, Held]:
    by_worker: defaultdict[Address, Held] = defaultdict(list)
    for replica, task in reader.session.execute(_UNHEARD, {"workers": list(workers)}):
        by_worker[replica.worker].append((replica, task))
    return by_worker


_UNHEARD: Final = (
    select(Replica, Task)
    .join(Task, Task.id == Replica.task_id)
    .where(is_in_bound_list(Replica.worker, "workers"), Replica.heard.is_(False))
)


def list_own_replicas(reader: RowReader, worker: Address, replicas: Iterable[str]) -> Held:
    """Returns those of the replicas that are the worker's, whether it knows their end or not."""
    return [(row, task) for row, task in reader.session.execute(_OWN, {"worker": worker, "replicas": list(replicas)})]


_OWN: Final = (
    select(Replica, Task)
    .join(Task, Task.id == Replica.task_id)
    .where(Replica.worker == bindparam("worker"), is_in_bound_list(Replica.id, "replicas"))
)


def list_workers_with_news(reader: RowReader) -> Sequence[Address]:
    """Returns the workers with a replica whose end they do not know yet."""
    return reader.session.scalars(select(Replica.worker).where(Replica.heard.is_(False)).distinct()).all()


def list_voucher_accounts(reader: RowReader, keys: Sequence[tuple[str, str]]) -> list[tuple[Account, int | None]]:
    """Returns the accounts of these jobs and workers, and of their other pairs, with the contract's numbers of jobs.

    Asks for none that the transaction has read already, such as those that it pays.
    """
    pairs = [(reader.known(Account, key), reader.known(Job, key[0])) for key in keys]
    read = [(account, job.chain_job) for account, job in pairs if account is not None and job is not None]
    if len(read) == len(keys):
        return read
    jobs, workers = zip(*keys, strict=True)
    return [(row, number) for row, number in reader.session.execute(_ACCOUNTS, {"jobs": jobs, "workers": workers})]


_ACCOUNTS: Final = (
    select(Account, Job.chain_job)
    .join(Job, Job.id == Account.job_id)
    .where(is_in_bound_list(Account.job_id, "jobs"), is_in_bound_list(Account.worker, "workers"))
)


def find_unused_reservations(
    reader: RowReader, worker: Address, leaving: bool, now: float
) -> dict[JobId, UnusedReservation]:
    """Returns what jobs that are over reserve for the worker beyond what it earned.

    For a worker that leaves: also those that are not over. Once claims have ended nothing is released any more. The
    oldest come first, at most MOST_UNUSED.
    """
    found = reader.session.execute(_UNUSED, {"worker": worker, "leaving": leaving, "now": now})
    return {JobId(job): UnusedReservation(chain_job=number, earned=earned) for job, number, earned in found}


MOST_UNUSED: Final = 32
_UNUSED: Final = (
    select(Job.id, Job.chain_job, Account.earned)
    .join(Account, Account.job_id == Job.id)
    .where(
        Job.chain_job.is_not(None),
        Account.worker == bindparam("worker"),
        Account.reserved > Account.earned,
        Job.claim_until > NOW,
        or_(Job.state.in_([state for state in JobState if is_final_state(state)]), bindparam("leaving", type_=Boolean)),
    )
    .order_by(Job.created_at, Job.id)
    .limit(MOST_UNUSED)
)


def closed_waves(reader: RowReader, tasks: Collection[str]) -> list[tuple[Wave, list[tuple[Address, Hash]]]]:
    """Returns the closed waves of the tasks, each with its commitments: pairs of a worker and its sealed answer."""
    waves: dict[tuple[str, int], tuple[Wave, list[tuple[Address, Hash]]]] = {}
    for wave, worker, sealed in reader.session.execute(_CLOSED, {"tasks": list(tasks)}):
        _, members = waves.setdefault((wave.task_id, wave.number), (wave, []))
        members.append((worker, sealed or Hash(b"")))
    return list(waves.values())


_CLOSED: Final = (
    select(Wave, Replica.worker, Replica.sealed)
    .join(Replica, and_(Replica.task_id == Wave.task_id, Replica.wave == Wave.number, Replica.sealed.is_not(None)))
    .where(is_in_bound_list(Wave.task_id, "tasks"))
)
