"""A copy of another task's answer is found where one replica decides a task; the copied worker keeps its standing."""

from collections.abc import Callable

from gradmarket.market.terms import AuditState, JobState, TaskState
from gradmarket.market.wire.poll import CommitmentRequest, OfferFields
from requester.features.audits.copies import ALIKE
from requester.features.records.worker_figures import read_history
from requester.store.tables import Earned, Reputation, Task
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "audited", "audit": 1e-9}, "norm_bound": 1e6}
"""One replica decides a task, and no audit is drawn."""


class Copier(SimWorker):
    """It gives the first answer that `source` had, whatever it is asked for, and waits for there to be one."""

    source: SimWorker

    def handed(self) -> bytes:
        return next((held.payload for held in self.source.held.values() if held.payload), b"")

    def commitments(self) -> list[CommitmentRequest]:
        return super().commitments() if self.source is self or self.handed() else []

    def compute(self, offer: OfferFields) -> bytes:
        return self.handed() or super().compute(offer)


def copier(market: MarketFixture, source: SimWorker | None = None) -> Copier:
    made = market.worker()
    made.__class__ = Copier
    assert isinstance(made, Copier)
    made.source = source or made
    return made


def audited(market: MarketFixture) -> dict[str, tuple[str, AuditState]]:
    return {audit.task_id: (audit.reason, AuditState(audit.state)) for audit in audits_of(market)}


def copies_of(market: MarketFixture, worker: SimWorker) -> int:
    with market.reading() as reader:
        return read_history(reader, worker.address).copies


def test_the_copier_loses_all_and_the_copied_worker_nothing(new_market: NewMarket) -> None:
    market = new_market(rounds=2, tasks_per_round=2, **ALONE)
    market.prove_class()
    honest = market.worker()
    thief = copier(market, honest)
    market.until(lambda: market.earned().get(honest.address) and market.earned().get(thief.address))
    reasons = {reason for reason, _ in audited(market).values()}
    assert reasons == {ALIKE}
    market.workers.remove(thief)
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    (told, *_) = market.events("copied")
    assert told["workers"] == [thief.address]
    assert told["same_as"]
    assert (copies_of(market, honest), copies_of(market, thief)) == (0, 1)
    assert {row.operator for row in market.all(Reputation, Reputation.failed > 0)} == {thief.address}
    assert {row.worker for row in market.all(Earned, Earned.revoked)} == {thief.address}
    (state,) = {audit for task, (_, audit) in audited(market).items() if task in told["same_as"]}
    assert state == AuditState.PASSED
    assert market.earned()[honest.address] >= 4 * PRICE
    check_books(market)


@FULL
def test_an_answer_given_again_in_the_next_round_is_found(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **ALONE)
    market.prove_class()
    idle = copier(market)
    market.until(lambda: audits_of(market), idle)
    assert list(audited(market).values()) == [(ALIKE, AuditState.DUE)]
    market.workers.remove(idle)
    honest = market.worker()
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert copies_of(market, idle) == 1
    assert copies_of(market, honest) == 0
    clean = new_market(rounds=2, **ALONE)
    clean.prove_class()
    clean.worker()
    clean.play()
    assert market.final_parameters() == clean.final_parameters()


def test_honest_workers_are_never_audited_for_it(new_market: NewMarket) -> None:
    market = new_market(rounds=1, tasks_per_round=3, **ALONE)
    market.prove_class()
    market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert audited(market) == {}
    assert market.events("copied") == []
    assert len({task.root for task in market.tasks(Task.state == TaskState.FINAL)}) == 3
    assert [copies_of(market, worker) for worker in market.workers] == [0, 0]
