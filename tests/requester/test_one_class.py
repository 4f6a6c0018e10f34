"""Reproducible arithmetic: processors of any classes vote together, and any of them audits."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from gradmarket.market.rules.classes import find_class_in_job
from gradmarket.market.terms import REPRODUCIBLE, JobState, TaskState
from gradmarket.market.wire.audit_messages import AuditRequest
from requester.store import workers
from requester.store.tables import Reputation, Worker
from tests.kit.behaviour import HONEST, Behaviour, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
ARITHMETIC: dict[str, Any] = {"arithmetic": "reproducible"}
NAMES = (
    "cpu/x86_64-GenuineIntel/avx2/threads-1",
    "cpu/x86_64-GenuineIntel/avx512/threads-2",
    "cpu/x86_64-AuthenticAMD/default/threads-4",
)
LIE = scaled(3.0)


def come(market: MarketFixture, *behaviours: Behaviour) -> list[SimWorker]:
    """One worker of each class."""
    return [market.worker(one, determinism_class=name) for one, name in zip(behaviours, NAMES, strict=True)]


def open_voting(new_market: NewMarket, **spec: Any) -> MarketFixture:
    """Three vote, and nobody audits."""
    voting = {"replication": {"name": "fixed", "replicas": 3, "max_replicas": 5}, "rounds": 2}
    return new_market(audited_classes=(), **(voting | spec))


def test_processors_of_three_classes_vote_together_and_are_paid(new_market: NewMarket) -> None:
    market = open_voting(new_market, **ARITHMETIC)
    workers = come(market, HONEST, HONEST, HONEST)
    market.play(passes=20)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: 2 * PRICE for worker in workers}
    assert {row.determinism_class for row in market.replicas()} == {REPRODUCIBLE}
    check_books(market)


def test_one_of_them_that_lies_is_outvoted(new_market: NewMarket) -> None:
    market = open_voting(new_market, **ARITHMETIC)
    honest, liar, other = come(market, HONEST, LIE, HONEST)
    market.play(passes=20)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {honest.address: 2 * PRICE, other.address: 2 * PRICE}
    assert liar.address not in market.earned()
    check_books(market)


def test_in_native_arithmetic_they_do_not_vote_together(new_market: NewMarket) -> None:
    market = open_voting(new_market)
    workers = come(market, HONEST, HONEST, HONEST)
    market.play(passes=10)
    assert market.earned() == {}
    assert "3 separate workers of one determinism class, has 1" in market.why_waiting()
    assert workers


@pytest.mark.parametrize("other", leave_to_full(["cuda/h100", "cpu/aarch64/default/threads-1"]))
def test_a_machine_whose_bits_were_not_compared_takes_no_place_of_theirs(new_market: NewMarket, other: str) -> None:
    market = open_voting(new_market, **ARITHMETIC)
    card = market.worker(determinism_class=other)
    workers = come(market, HONEST, HONEST, HONEST)
    market.play(passes=20)
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {worker.address for worker in workers}
    assert card.address not in market.earned()


@FULL
@pytest.mark.parametrize(
    "replication", [{"name": "audited", "audit": 1.0}, {"name": "proven"}], ids=["audited", "proven"]
)
def test_an_auditor_of_another_processor_checks_them_all(new_market: NewMarket, replication: dict[str, Any]) -> None:
    spec = {"rounds": 3, "tasks_per_round": 3, "replication": replication, **ARITHMETIC}
    market = new_market(audited_classes=(), **spec)
    auditor = SimAuditor(market, determinism_class="cpu/x86_64/threads-8")
    assert auditor.claim() is None
    workers = come(market, HONEST, HONEST, HONEST)
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {worker.address for worker in workers}
    assert {audit.determinism_class for audit in audits_of(market)} == {REPRODUCIBLE}
    assert {row.determinism_class for row in market.all(Reputation)} == {REPRODUCIBLE}
    check_books(market)


def test_the_auditor_finds_a_lie_of_any_of_them(new_market: NewMarket) -> None:
    spec = {"rounds": 1, "replication": {"name": "audited", "audit": 1.0}, **ARITHMETIC}
    market = new_market(audited_classes=(), **spec)
    auditor = SimAuditor(market, determinism_class="cpu/x86_64/threads-8")
    assert auditor.claim() is None
    liar = market.worker(LIE, determinism_class=NAMES[0])
    market.until(lambda: audits_of(market), liar)
    honest = market.worker(determinism_class=NAMES[1])
    auditor.play()
    assert market.state() == JobState.FINISHED
    (failed,) = market.events("audit_failed")
    assert failed["workers"] == [liar.address]
    assert market.earned()[honest.address] == PRICE
    assert TaskState.REVOKED in {task.state for task in market.tasks()}


def test_an_auditor_of_a_card_checks_none_of_them(new_market: NewMarket) -> None:
    market = new_market(audited_classes=(), rounds=1, replication={"name": "audited", "audit": 1.0}, **ARITHMETIC)
    auditor = SimAuditor(market, determinism_class="cuda/h100")
    assert auditor.claim() is None
    come(market, HONEST, HONEST, HONEST)
    market.play(passes=10)
    assert market.earned() == {}


def test_nobody_announces_the_common_class() -> None:
    with pytest.raises(ValidationError, match="no machine's own class"):
        AuditRequest(auditor="a", determinism_class=REPRODUCIBLE)


@pytest.mark.parametrize("name", [NAMES[0], "CPU/X86_64/threads-1", "cpu/x86-64/threads-1", "cpu/x86_64", "cpu/x86_6"])
def test_the_books_and_the_rule_give_a_class_that_begins_alike_the_same_place(new_market: NewMarket, name: str) -> None:
    market = open_voting(new_market, **ARITHMETIC)
    worker = market.worker(determinism_class=name)
    worker.request_work()
    asked = {"reproducible": True}
    with market.reading() as reader:
        of_row = select(workers.CLASS).where(Worker.address == worker.address)
        assert reader.session.scalar(of_row, asked) == find_class_in_job(name, True)
