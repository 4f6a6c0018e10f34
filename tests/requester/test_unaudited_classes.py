"""A determinism class that no auditor of the job asks for: it holds up no audited job, whoever names it first."""

from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.features.audits import class_checks
from gradmarket.market.terms import AuditState, JobState, TaskState
from requester.features.audits.audit_tables import AuditedClass
from tests.kit.behaviour import HONEST, NOISE, Behaviour, filled, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
ALONE: dict[str, Any] = {"replication": {"name": "audited", "audit": 1.0}}
VOTED: dict[str, Any] = {"audit": {"probability": 1.0}}
MADE_UP = "made-up"
SAME = filled("w", 7.0)
"""One answer for every task, whoever sends it."""
INFINITE = filled("w", float("inf"))


def come(market: MarketFixture, name: str, count: int, behaviour: Behaviour) -> list[SimWorker]:
    return [market.worker(behaviour, determinism_class=name) for _ in range(count)]


@pytest.mark.parametrize("behaviour", leave_to_full([NOISE, HONEST]), ids=["a liar", "an honest machine"])
def test_one_wallet_of_another_class_comes_first_and_gets_no_task(new_market: NewMarket, behaviour: Behaviour) -> None:
    market = new_market(rounds=2, audited_classes=(), **ALONE)
    (first,) = come(market, MADE_UP, 1, behaviour)
    market.play(first, passes=10)
    assert market.earned() == {}
    assert "gradmarket auditor run" in market.why_waiting()
    auditor = SimAuditor(market)
    assert auditor.claim() is None
    honest = market.worker()
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert market.earned() == {honest.address: 2 * PRICE}
    check_books(market)


@FULL
def test_the_class_of_an_auditor_that_comes_later_is_served(new_market: NewMarket) -> None:
    market = new_market(rounds=2, audited_classes=(), **ALONE)
    (worker,) = come(market, "gpu", 1, HONEST)
    market.play(passes=5)
    SimAuditor(market, determinism_class="gpu").play()
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: 2 * PRICE}


@FULL
@pytest.mark.parametrize(
    "behaviour", [scaled(3.0), SAME, INFINITE, HONEST], ids=["a lie", "equal", "infinite", "honest"]
)
def test_a_quorum_of_a_class_without_auditor_is_voted_again(new_market: NewMarket, behaviour: Behaviour) -> None:
    """Three wallets of a made-up class hold the vote before anybody else is there."""
    market = new_market(rounds=2, tasks_per_round=2, **VOTED)
    puppets = come(market, MADE_UP, 3, behaviour)
    market.until(lambda: audits_of(market), *puppets)
    auditor = SimAuditor(market)
    assert auditor.work() == 0
    honest = [market.worker() for _ in range(3)]
    auditor.play(passes=5)
    market.lapse(class_checks.UNHEARD_S + 1.0)
    honest[0].request_work()
    assert {audit.state for audit in audits_of(market) if audit.determinism_class == MADE_UP} == {AuditState.LAPSED}
    auditor.play()
    assert market.state() == JobState.FINISHED
    lapsed = {event["task"] for event in market.events("audit_lapsed")}
    assert {task.id for task in market.tasks() if task.state == TaskState.REVOKED} == lapsed
    assert {task.determinism_class for task in market.tasks() if task.used} == {CLASS}
    assert all(market.earned()[worker.address] == 4 * PRICE for worker in honest)
    check_books(market)


@FULL
def test_without_any_other_class_the_job_waits_once_and_pays_for_nothing_more(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **VOTED)
    puppets = come(market, MADE_UP, 3, SAME)
    market.until(lambda: audits_of(market))
    market.play(passes=10)
    market.lapse(class_checks.UNHEARD_S + 1.0)
    puppets[0].request_work()
    paid = market.earned()
    market.play(passes=20)
    assert market.earned() == paid
    assert "gradmarket auditor run" in market.why_waiting()
    SimAuditor(market, SAME, determinism_class=MADE_UP).play()
    assert market.state() == JobState.FINISHED, "its auditor came"
    assert puppets


@FULL
def test_an_audit_waits_for_an_auditor_that_was_there(new_market: NewMarket) -> None:
    """It went away for a night: votes do not replace its results."""
    market = new_market(rounds=3, **VOTED)
    for _ in range(3):
        market.worker()
    market.play(passes=20)
    market.lapse(20 * class_checks.UNHEARD_S)
    assert {audit.state for audit in audits_of(market)} == {AuditState.DUE}
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED


def test_an_auditor_is_written_down_once_in_a_while(new_market: NewMarket) -> None:
    market = new_market(audited_classes=(), **VOTED)
    auditor = SimAuditor(market)
    auditor.claim()
    first = market.all(AuditedClass)[0].asked_at
    market.lapse(1.0)
    auditor.claim()
    assert [row.asked_at for row in market.all(AuditedClass)] == [first]
    market.lapse(class_checks.UNHEARD_S)
    auditor.claim()
    assert market.all(AuditedClass)[0].asked_at > first
