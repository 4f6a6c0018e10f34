"""The queue of a job's newcomers, by market.features.proven.seat_rules."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import BigInteger, Integer, and_, bindparam, func, select
from sqlalchemy.orm import aliased

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.features.proven.seat_rules import Newcomer
from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import Hash
from requester.features import reputation as reputations
from requester.features.audits import audited_classes
from requester.features.proven import proven_records, seats
from requester.store import jobs, newcomers, workers
from requester.store.tables import Account, Job, Replica, Task, Worker
from requester.store.work import RowReader


def has_queue(reader: RowReader, job: Job, now: float) -> bool:
    """Returns whether the job separates newcomers from proven workers, and its class has the auditor for it."""
    return jobs.load_spec(job).proof is not None and not audited_classes.needs_no_auditor(reader, job, now)


def list_queue(reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Newcomer]:
    """Returns the unproven workers that ask for work and hold no place of the job, in the order of their turns.

    Empty where the job separates none. They are `covered` or not.
    """
    if not has_queue(reader, job, now):
        return []
    proof = jobs.load_spec(job).proof or 0
    about = {"deposit": proven.PROOF * job.price} | proven_records.bind_proof(job, now)
    rows = reader.session.execute(_ASKING, newcomers.ask_in_turn(job, mixable, now) | about).all()
    records = reputations.load_standings(reader, job, {row.operator for row in rows}, now)
    # when each payout address and each network last had a newcomers' task, of the newest rounds
    newest, served = jobs.latest_round(reader, job.id), dict[str | None, float]()
    since = {"job": job.id, "since": (newest.number if newest else 0) - seat_rules.UNTRIED_ROUNDS}
    for payout, network, leased_at in reader.session.execute(_SERVED, since):
        served[payout] = max(leased_at, served.get(payout, 0.0))
        if network is not None:
            served[network] = max(leased_at, served.get(network, 0.0))
    standings = [records.get((row.operator, row.determinism_class), 0.0) for row in rows]
    return seat_rules.order_newcomers(
        Newcomer(
            workers.build_party(row),
            standing,
            max(served.get(row.payout, 0.0), served.get(row.network, 0.0)),
            row.joined_at,
            bool(row.deposit),
            bool(row.covered),
            untried=standing <= 0.0 and row.network is not None and row.network not in served,
        )
        for row, standing in zip(rows, standings, strict=True)
        if not proven.is_proven(standing, proof)
    )


def list_due(reader: RowReader, job: Job, queue: Sequence[Newcomer], mixable: Mixable, now: float) -> list[Newcomer]:
    """Returns the newcomers that should have money in the newest round (market.features.proven.seat_rules.list_due).

    Those that get no seat, since one of theirs left its own, get no money meanwhile.
    """
    row = jobs.latest_round(reader, job.id)
    number, share = row.number if row else 0, load_share(reader, job, mixable, now)
    if share > 1:
        queue = seat_rules.list_unpaused(queue, seats.list_watched_places(reader, job, now))
    return seat_rules.list_due(Hash(job.secret), number, queue, jobs.load_spec(job).sizes.of(number), share)


def load_share(reader: RowReader, job: Job, mixable: Mixable, now: float) -> int:
    """Returns n where newcomers get one task in n just now."""
    votes = jobs.load_spec(job).replication.replicas
    return seat_rules.compute_share(seats.count_proven(reader, job, mixable, now, 2 * votes), votes)


_SERVED: Final = (
    select(Replica.payout, Replica.network, func.max(Replica.leased_at))
    .join(Task, Task.id == Replica.task_id)
    .where(Task.job_id == bindparam("job"), Task.round > bindparam("since", type_=Integer), seats.IS_ALONE)
    .group_by(Replica.payout, Replica.network)
)


_OWN: Final = aliased(Account)
_ASKING: Final = (
    select(
        *(Worker.address, Worker.operator, Worker.payout, Worker.network, Worker.joined_at),
        workers.CLASS.label("determinism_class"),
        (func.coalesce(_OWN.at_risk, 0) >= bindparam("deposit", type_=BigInteger)).label("deposit"),
        newcomers.COVERED.label("covered"),
    )
    .outerjoin(_OWN, and_(_OWN.job_id == bindparam("job"), _OWN.worker == Worker.address))
    .where(*workers.ASKING_NOW, *workers.CONTENT, workers.OF_CLASSES, ~workers.BUSY)
    .order_by(proven_records.PROVEN, newcomers.TURN, func.random())
    .limit(newcomers.SAMPLE)
)
