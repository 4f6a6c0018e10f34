"""Proven replication: newcomers work alone, in turn, each answer audited before it is paid; proven workers vote.

The rules are market.features.proven.seat_rules and, in a class without auditor, audits.class_checks.
"""

from collections.abc import Sequence

from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.terms import Address
from requester.feature import Feature
from requester.features.audits import audited_classes
from requester.features.proven import next_covered, plain_votes
from requester.features.proven.plain_votes import PlainPool
from requester.features.proven.seating import SeatPool
from requester.moves.candidates import CandidatePool
from requester.store import jobs
from requester.store.in_hand import TaskInHand
from requester.store.tables import Job, Replica
from requester.store.work import RowReader


class ProvenFeature(Feature):
    name = "proven"
    needs = ("audits", "reputation")

    def choose_pool(self, reader: RowReader, job: Job, now: float) -> type[CandidatePool] | None:
        if jobs.load_spec(job).proof is None:
            return None
        return PlainPool if audited_classes.needs_no_auditor(reader, job, now) else SeatPool

    def list_next_covered(self, reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Address] | None:
        return next_covered.list_next_covered(reader, job, mixable, now)

    def list_overruled(self, reader: RowReader, hand: TaskInHand, root: str) -> Sequence[Replica]:
        return plain_votes.list_overruled(reader, hand.task, root, jobs.load_spec(hand.job).unaudited_plans)
