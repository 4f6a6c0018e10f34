"""Rings that know a whole task before they answer, against a job of `proven` on the service's own stages."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gradmarket.market.terms import JobState
from gradmarket.market.wire.poll import OfferFields
from requester.store.tables import Replica, Task
from tests.features.audits.test_audits import clean_parameters
from tests.features.proven.test_proven import failed, open_job, prove
from tests.kit.behaviour import scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
ROUNDS = 5
LIE = scaled(3.0)
NEVER = 1e-9
SURE = 1 - 1e-9


@dataclass
class Ring:
    """Lies alike with all its seats of a task where it `wants`, given their number, the task's and its round."""

    wants: Callable[[int, int, int], bool]
    members: set[str] = field(default_factory=set)
    lies: dict[str, bool] = field(default_factory=dict)

    def decide(self, market: MarketFixture, offer: OfferFields) -> bool:
        task = market.tasks(Task.round == offer.round, Task.index == offer.task)[-1]
        if task.id not in self.lies:
            seats = [row.worker for row in market.all(Replica, Replica.task_id == task.id)]
            self.lies[task.id] = self.wants(len(self.members.intersection(seats)), len(seats), task.round)
        return self.lies[task.id]


class RingWorker(SimWorker):
    ring: Ring

    def compute(self, offer: OfferFields) -> bytes:
        self.behaviour = LIE if self.ring.decide(self.market, offer) else scaled(1.0)
        return super().compute(offer)


CASES = {
    "always": (2, 1, NEVER, lambda _held, _seats, _round: True),
    "quorum": (2, 1, NEVER, lambda held, seats, _round: 2 * held > seats),
    "dissent": (1, 2, NEVER, lambda held, seats, _round: held < seats),
    "unanimous": (3, 0, SURE, lambda held, seats, _round: held == seats == 3),
    "once": (3, 0, SURE, lambda held, seats, number: held == seats == 3 and number == 0),
    "patient": (3, 0, SURE, lambda held, seats, number: held == seats == 3 and number == 2),
    "late": (3, 0, NEVER, lambda held, seats, number: held == seats and number >= ROUNDS - 2),
}
"""Ring and honest workers that are proven, the rate of audits, and where the ring lies."""


@FULL
@pytest.mark.parametrize("name", CASES)
def test_no_ring_leaves_a_lie_in_the_model_nor_an_honest_answer_unpaid(new_market: NewMarket, name: str) -> None:
    """Of three seats; an honest newcomer waits beside them and goes on where the ring is barred."""
    size, others, rate, wants = CASES[name]
    market, auditor = open_job(new_market, rounds=ROUNDS, replication={"audit": rate})
    ring = Ring(wants)
    members = [market.worker(kind=RingWorker) for _ in range(size)]
    for member in members:
        assert isinstance(member, RingWorker)
        member.ring = ring
        member.capacity = 20
    ring.members = {member.address for member in members}
    honest = [market.worker() for _ in range(others)]
    prove(market, *members, *honest)
    honest.append(market.worker())
    auditor.play()
    assert any(ring.lies.values()), "it had its chance"
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=ROUNDS)
    assert not failed(market) & {worker.address for worker in honest}
    seats = len([row for row in market.replicas() if row.worker in ring.members])
    assert sum(market.earned().get(member, 0) for member in ring.members) <= seats * PRICE
    answered = {row.state for row in market.replicas() if row.worker not in ring.members and row.root is not None}
    assert answered <= {"payable"}
    check_books(market)
