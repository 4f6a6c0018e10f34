"""The queue of a job's newcomers, where it tells them from proven workers. The rule is market.rules.identities."""

from collections.abc import Sequence
from secrets import randbelow
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, and_, bindparam, case, exists, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, aliased

from gradmarket.market.rules import assignment, identities
from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.rules.identities import Newcomer
from requester.store import audited_classes, jobs, lead_candidates, proven_records, seats, workers
from requester.store.tables import Account, Job, Replica, Task, Worker
from requester.store.work import RowReader

SAMPLE: Final = 256
"""Most workers looked at, of all that ask: in turn over their owners, at random within a turn."""
ROUNDS: Final = 64
"""Newest rounds whose newcomers' tasks count as a turn of their owner."""
DIGITS: Final = 32
"""At how many digits of an address an order may begin; eight follow the last of them."""


def has_queue(reader: RowReader, job: Job, now: float) -> bool:
    """Returns whether the job tells newcomers from proven workers, and its class has the auditor for it."""
    return jobs.load_spec(job).proof is not None and not audited_classes.needs_no_auditor(reader, job, now)


def list_queue(reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Newcomer]:
    """Returns the unproven workers that ask for work and hold no place of the job, in the order of their turns.

    Empty where the job tells nobody apart. They are `covered` or not.
    """
    if not has_queue(reader, job, now):
        return []
    proof = jobs.load_spec(job).proof or 0
    beside = assignment.list_comparable_classes(job.determinism_class or "", mixable)
    about = {"deposit": identities.PROOF * job.price, "digit": 3 + randbelow(DIGITS)} | proven_records.bind_proof(
        job, now
    )
    rows = reader.session.execute(_ASKING, workers.asked_of(job, now, beside) | about).all()
    records = lead_candidates.load_standings(reader, job, {row.operator for row in rows}, now)
    served = _load_turns(reader, job)
    standings = [records.get((row.operator, row.determinism_class), 0.0) for row in rows]
    return identities.order_newcomers(
        Newcomer(
            workers.build_party(row),
            standing,
            max(served.get(row.payout, 0.0), served.get(row.network, 0.0)),
            row.joined_at,
            bool(row.deposit),
            bool(row.covered),
        )
        for row, standing in zip(rows, standings, strict=True)
        if not identities.is_proven(standing, proof)
    )


def list_next(reader: RowReader, job: Job, queue: Sequence[Newcomer], mixable: Mixable, now: float) -> list[Newcomer]:
    """Returns the first of the queue, as many as get a seat in two rounds, and as many of those with a deposit."""
    share, spec = load_share(reader, job, mixable, now), jobs.load_spec(job)
    row = jobs.latest_round(reader, job.id)
    most = 2 * max(1, spec.sizes.of(row.number if row else 0) // share)
    return list(dict.fromkeys([*queue[:most], *[one for one in queue if one.deposit][:most]]))


def load_share(reader: RowReader, job: Job, mixable: Mixable, now: float) -> int:
    """Returns n where newcomers get one task in n just now."""
    votes = jobs.load_spec(job).replication.replicas
    return identities.compute_share(seats.count_proven(reader, job, mixable, now, 2 * votes), votes)


def _load_turns(reader: RowReader, job: Job) -> dict[str | None, float]:
    """Returns when each payout address and each network last had a newcomers' task, of the newest rounds."""
    row, turns = jobs.latest_round(reader, job.id), dict[str | None, float]()
    since = {"job": job.id, "since": (row.number if row else 0) - ROUNDS}
    for payout, network, leased_at in reader.session.execute(_SERVED, since):
        turns[payout] = max(leased_at, turns.get(payout, 0.0))
        if network is not None:
            turns[network] = max(leased_at, turns.get(network, 0.0))
    return turns


_SERVED: Final = (
    select(Replica.payout, Replica.network, func.max(Replica.leased_at))
    .join(Task, Task.id == Replica.task_id)
    .where(Task.job_id == bindparam("job"), Task.round > bindparam("since", type_=Integer), seats.IS_ALONE)
    .group_by(Replica.payout, Replica.network)
)


def _number_per_owner(column: InstrumentedAttribute[Any]) -> ColumnElement[int]:
    """Numbers the selected workers with the same value of the column, from 1 on.

    The order is one for all columns, by what their addresses are from a random digit on: random() would give each
    column an order of its own, and nobody would be the first of both its payout address and its network.
    """
    digits = func.substr(Worker.address, bindparam("digit", type_=Integer))
    return func.row_number().over(partition_by=column, order_by=(digits, Worker.address))


_BY_PAYOUT: Final = _number_per_owner(Worker.payout)
_BY_NETWORK: Final = case((Worker.network.is_(None), 1), else_=_number_per_owner(Worker.network))
TURN: Final = case((_BY_PAYOUT > _BY_NETWORK, _BY_PAYOUT), else_=_BY_NETWORK)
"""The turn in which a worker comes among all selected, before any is left out (market.rules.newcomers.in_turn)."""
COVERED: Final = exists().where(
    Account.job_id == bindparam("job"),
    Account.worker == Worker.address,
    or_(Account.earned > 0, Account.reserved >= workers.PRICE),
)
_OWN: Final = aliased(Account)
_ASKING: Final = (
    select(
        *(Worker.address, Worker.operator, Worker.payout, Worker.network, Worker.joined_at),
        workers.CLASS.label("determinism_class"),
        (func.coalesce(_OWN.at_risk, 0) >= bindparam("deposit", type_=Integer)).label("deposit"),
        COVERED.label("covered"),
    )
    .outerjoin(_OWN, and_(_OWN.job_id == bindparam("job"), _OWN.worker == Worker.address))
    .where(*workers.ASKING_NOW, *workers.CONTENT, workers.OF_CLASSES, ~workers.BUSY)
    .order_by(proven_records.PROVEN, TURN, func.random())
    .limit(SAMPLE)
)
