"""Reputation: the judged answers of an operator, by determinism class; other features grant trust by it."""

from collections.abc import Iterable, Sequence

from gradmarket.market.rules import assignment
from requester.feature import Feature
from requester.features.reputation import reputations
from requester.store.tables import Replica
from requester.store.work import Work
from requester.store.workers import build_party


class ReputationFeature(Feature):
    name = "reputation"

    def ballots_refuted(self, work: Work, replicas: Sequence[Replica], now: float) -> None:
        for name in sorted({replica.determinism_class for replica in replicas}):
            parties = [build_party(replica) for replica in replicas if replica.determinism_class == name]
            reputations.record_outvoted_ballots(work, assignment.list_answerable_keys(parties), name, now)

    def places_left(self, work: Work, left: Iterable[tuple[str, str]], now: float) -> None:
        reputations.record_left_places(work, left, now)

    def operator_left(self, work: Work, worker: str, operator: str, now: float) -> None:
        reputations.copy_bar_to_wallet(work, worker, operator, now)
