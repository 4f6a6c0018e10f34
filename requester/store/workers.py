"""Queries about who works: who is there, who asks, and what each is good for in a job."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from gradmarket.market.rules.assignment import Candidate, Party
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.rules.payment import Standing
from gradmarket.market.terms import Address, Units
from gradmarket.requester.store.tables import Account, Job, Replica, Round, Task, Worker

LIVE_S: Final = 45.0
"""A worker that was not heard of for longer is gone: a long poll takes 30 s at most."""


def party(row: Worker | Replica) -> Party:
    address = row.address if isinstance(row, Worker) else row.worker
    return Party(Address(address), row.operator, Address(row.payout), row.network)


def live(session: Session, now: float) -> Sequence[Worker]:
    return session.scalars(select(Worker).where(Worker.seen_at > now - LIVE_S)).all()


def in_flight(session: Session, job_id: str) -> dict[str, int]:
    """Open replicas by worker."""
    open_replicas = (
        select(Replica.worker, func.count())
        .where(Replica.job_id == job_id, Replica.state.in_(IN_FLIGHT))
        .group_by(Replica.worker)
    )
    return dict(session.execute(open_replicas).all())


def at_stake(session: Session, job_id: str) -> dict[str, Units]:
    """What the open replicas of each worker may still earn, each the price of its own round."""
    open_replicas = (
        select(Replica.worker, func.sum(Round.price))
        .join(Task, Task.id == Replica.task_id)
        .join(Round, and_(Round.job_id == Task.job_id, Round.number == Task.round))
        .where(Replica.job_id == job_id, Replica.state.in_(IN_FLIGHT))
        .group_by(Replica.worker)
    )
    return {worker: Units(int(units)) for worker, units in session.execute(open_replicas)}


def standings(session: Session, job: Job) -> dict[str, Standing]:
    """Every worker's money in the job."""
    stakes, nothing = at_stake(session, job.id), Units(0)
    accounts = session.scalars(select(Account).where(Account.job_id == job.id))
    return {
        account.worker: Standing(
            Units(account.reserved),
            Units(account.earned),
            stakes.get(account.worker, nothing),
        )
        for account in accounts
    }


def candidates(session: Session, job: Job, workers: Sequence[Worker]) -> list[Candidate]:
    money = standings(session, job)
    nothing = Standing(Units(0), Units(0), Units(0))
    return [
        Candidate(
            party(worker),
            worker.determinism_class,
            money.get(worker.address, nothing).uncommitted,
            worker.capacity,
            worker.strikes,
            Units(max(worker.least_price, worker.least_prices.get(job.id, 0))),
            frozenset(worker.jobs),
        )
        for worker in workers
    ]
