"""Proven replication: newcomers work alone, in turn, each answer audited before it is paid; proven workers vote.

The rules are market.features.proven.seat_rules and, in a class without auditor, audits.class_checks.

The queue of newcomers for the next reservations is by market.rules.newcomers.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import func

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.rules import newcomers as rules
from gradmarket.market.rules.assignment import Mixable, Party
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import Address
from requester.feature import Feature
from requester.features import reputation as reputations
from requester.features.audits import audited_classes
from requester.features.proven import joining, newcomers_money, plain_votes, proven_records
from requester.features.proven.plain_votes import PlainPool
from requester.features.proven.seating import SeatPool
from requester.moves.candidates import CandidatePool
from requester.store import jobs, newcomers, workers
from requester.store.in_hand import TaskInHand
from requester.store.tables import Job, Replica, Worker
from requester.store.work import RowReader


def list_next_covered(reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Address] | None:
    """Returns proven workers, and the first of the queue, as far as the money for each of both goes.

    A reservation returns only with the job, and each worker of a flood would hold one: so workers get it in turn.
    Records decide which workers are proven, and of each operator one wallet is due: it has one seat. None where the job
    has no queue.
    """
    if not joining.has_queue(reader, job, now):
        return None
    queue = joining.list_queue(reader, job, mixable, now)
    ahead = [one for one in joining.list_due(reader, job, queue, mixable, now) if not one.covered]
    money = newcomers_money.load_newcomers_money(reader, job, now)
    drawn = _draw_proven_parties(reader, job, mixable, now)
    funded = seat_rules.choose_funded(ahead, money.held, money.left, money.without)
    return [party.worker for party in [*drawn[: money.proven], *(one.party for one in funded)]]


def _draw_proven_parties(reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Party]:
    """Returns proven workers, one of each operator, without operators that hold money for one that earned nothing."""
    proof = jobs.load_spec(job).proof or 0
    asked = newcomers.ask_in_turn(job, mixable, now) | proven_records.bind_proof(job, now)
    rows = newcomers.load_content_workers(reader, job, _RECORDED, asked)
    records = reputations.load_standings(reader, job, {row.operator for row in rows}, now)
    parties = rules.in_turn(
        workers.build_party(row)
        for row in rows
        if proven.is_proven(records.get((row.operator, workers.get_class(row, job)), 0.0), proof)
    )
    firsts: dict[str, Party] = {}
    for party in parties:
        firsts.setdefault(party.operator, party)
    return list(firsts.values())


_RECORDED: Final = (
    newcomers.ASKS.where(proven_records.PROVEN, Worker.operator.not_in(newcomers_money.HOLDERS))
    .order_by(newcomers.TURN, func.random())
    .limit(newcomers.SAMPLE)
)


class ProvenFeature(Feature):
    name = "proven"
    needs = ("audits", "late", "reputation")

    def choose_pool(self, reader: RowReader, job: Job, now: float) -> type[CandidatePool] | None:
        if jobs.load_spec(job).proof is None:
            return None
        return PlainPool if audited_classes.needs_no_auditor(reader, job, now) else SeatPool

    def list_next_covered(self, reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Address] | None:
        return list_next_covered(reader, job, mixable, now)

    def list_overruled(self, reader: RowReader, hand: TaskInHand, root: str) -> Sequence[Replica]:
        return plain_votes.list_overruled(reader, hand.task, root, jobs.load_spec(hand.job).unaudited_plans)
