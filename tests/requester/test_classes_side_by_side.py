"""`proven`: determinism classes that have an auditor work side by side in one job, each task in one of them."""

from collections.abc import Callable
from typing import Any

from gradmarket.market.features.audits import class_checks
from gradmarket.market.terms import JobState, TaskState
from requester.features import reputation as reputations
from requester.store.tables import Job
from tests.features.audits.test_audits import clean_parameters
from tests.features.proven.test_proven import failed, open_job
from tests.kit.behaviour import scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
OTHER = "gpu"
LIE = scaled(3.0)


def open_for_two(new_market: NewMarket, **spec: Any) -> tuple[MarketFixture, list[SimAuditor]]:
    market, first = open_job(new_market, **spec)
    second = SimAuditor(market, determinism_class=OTHER, name="second")
    assert second.claim() is None
    return market, [first, second]


def prove_in(market: MarketFixture, *workers: SimWorker) -> None:
    with market.context.begin() as work:
        cost = reputations.compute_cost(work.get_one(Job, market.job))
        for _ in range(16):
            passed = [(worker.address, worker.determinism_class, cost) for worker in workers]
            reputations.record_passed_audits(work, passed, market.clock())


def play(market: MarketFixture, auditors: list[SimAuditor]) -> None:
    for _ in range(120):
        if market.state() != JobState.RUNNING:
            return
        market.take_turns()
        market.lapse(1.0)
        for auditor in auditors:
            auditor.work()


def classes_of_tasks(market: MarketFixture) -> dict[str, set[str]]:
    """By task the classes of the workers that had a seat of it."""
    found: dict[str, set[str]] = {}
    for row in market.replicas():
        found.setdefault(row.task_id, set()).add(row.determinism_class)
    return found


@FULL
def test_proven_workers_of_two_classes_vote_each_among_their_own(new_market: NewMarket) -> None:
    market, auditors = open_for_two(new_market, rounds=3, tasks_per_round=3, replication={"audit": 1e-9})
    own = [market.worker() for _ in range(3)]
    others = [market.worker(determinism_class=OTHER) for _ in range(3)]
    prove_in(market, *own, *others)
    play(market, auditors)
    assert market.state() == JobState.FINISHED
    assert all(len(names) == 1 for names in classes_of_tasks(market).values())
    assert {task.determinism_class for task in market.tasks() if task.plan.first_wave == 3} == {CLASS, OTHER}
    assert all(market.earned()[worker.address] > 0 for worker in (*own, *others))
    assert market.final_parameters() == clean_parameters(new_market, rounds=3, tasks_per_round=3)
    check_books(market)


def test_newcomers_of_two_classes_are_each_audited_in_their_own(new_market: NewMarket) -> None:
    market, auditors = open_for_two(new_market, rounds=2, tasks_per_round=2)
    workers = [market.worker(), market.worker(determinism_class=OTHER)]
    play(market, auditors)
    assert market.state() == JobState.FINISHED
    assert {audit.determinism_class for audit in audits_of(market)} == {CLASS, OTHER}
    assert set(market.earned()) == {worker.address for worker in workers}
    check_books(market)


@FULL
def test_a_ring_of_the_larger_class_takes_no_task_from_the_other(new_market: NewMarket) -> None:
    """Five identities of one class lie in each vote, beside three honest ones of the other."""
    market, auditors = open_for_two(new_market, rounds=2, tasks_per_round=2, replication={"audit": 0.999})
    ring = [market.worker(LIE, determinism_class=OTHER) for _ in range(5)]
    honest = [market.worker() for _ in range(3)]
    prove_in(market, *ring, *honest)
    play(market, auditors)
    assert market.state() == JobState.FINISHED
    assert failed(market) <= {liar.address for liar in ring}
    assert all(market.earned().get(worker.address, 0) >= PRICE for worker in honest)
    assert market.final_parameters() == clean_parameters(new_market, rounds=2, tasks_per_round=2)
    check_books(market)


@FULL
def test_a_class_whose_auditor_leaves_accepts_nothing_and_the_other_goes_on(new_market: NewMarket) -> None:
    market, (first, second) = open_for_two(new_market, rounds=2)
    gone = market.worker(determinism_class=OTHER)
    here = market.worker()
    for _ in range(int(class_checks.UNHEARD_S / 100.0) + 1):
        market.lapse(100.0)
        first.claim()
    for _ in range(30):
        if market.state() != JobState.RUNNING:
            break
        for worker in (gone, here):
            worker.turn()
        market.lapse(2.0)
        first.work()
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {here.address}
    assert not market.replicas(gone)
    assert all(task.determinism_class == CLASS for task in market.tasks() if task.state == TaskState.FINAL)
    assert second
    check_books(market)
