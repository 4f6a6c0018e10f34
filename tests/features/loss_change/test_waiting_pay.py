"""Newcomers' pay waits for their test, in jobs whose answers nobody can compute again."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.features.audits.class_checks import UNHEARD_S
from gradmarket.market.features.loss_change import RUNS
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from requester.features.audits.audit_draws import REFUTED, SUSPECT
from requester.store.tables import Account, Earned, Replica, Reputation, Task, Worker
from tests.features.loss_change.market_scorer import Scorer
from tests.features.loss_change.test_loss_change import hired, scored
from tests.kit.behaviour import HONEST, NOISE, Behaviour, filled, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker
from tests.requester.test_without_auditor import described

NewMarket = Callable[..., MarketFixture]


def account_of(market: MarketFixture, worker: SimWorker) -> Account:
    (found,) = market.all(Account, Account.worker == worker.address)
    return found


def promised(market: MarketFixture, worker: SimWorker) -> int:
    account = account_of(market, worker)
    return account.earned - account.waiting


def test_pay_waits_until_the_test_of_its_operator_clears_it(new_market: NewMarket) -> None:
    market = new_market(rounds=2, tasks_per_round=RUNS // 2 + 6, **scored())
    (worker,) = hired(market, HONEST)
    market.until(lambda: len(market.rounds()) == 2)
    assert promised(market, worker) == 0
    assert account_of(market, worker).waiting > 0
    assert {row.state for row in market.replicas(worker)} >= {ReplicaState.PAYABLE}, "its answers count all the same"
    check_books(market)
    Scorer(market, passing=1.0).play()
    assert market.state() == JobState.FINISHED
    assert promised(market, worker) == 2 * (RUNS // 2 + 6) * PRICE
    assert not any(row.waits or row.revoked for row in market.all(Earned))
    check_books(market)


@FULL
def test_pay_that_waits_is_explained_to_the_requester_and_to_the_worker(new_market: NewMarket) -> None:
    market = new_market(rounds=3, tasks_per_round=RUNS + 10, **scored())
    (worker,) = hired(market, HONEST)
    assert "pay" not in described(market)
    market.until(lambda: len(market.rounds()) == 2)
    gradients = account_of(market, worker).waiting // PRICE
    assert f"The pay for {gradients} gradients of 1 worker waits until audits score" in described(market)
    market.gather()
    worker.capacity = 0
    worker.send_poll()
    assert f"its pay for {gradients} gradients waits until audits score" in worker.waiting
    Scorer(market, passing=1.0).play()
    assert "pay" not in described(market)


@FULL
def test_a_convicted_worker_gets_no_waiting_pay(new_market: NewMarket) -> None:
    market = new_market(rounds=2, tasks_per_round=RUNS + 10, **scored())
    liar, honest = hired(market, NOISE, HONEST)
    Scorer(market, passing=1.0, seed=1).play(passes=100)
    assert market.state() == JobState.FINISHED
    assert market.events("scores_convicted")
    account = account_of(market, liar)
    assert (account.earned, account.waiting, account.voucher_signature) == (0, 0, None)
    (told,) = market.events("pay_dropped")
    assert told["operator"] == liar.address
    assert promised(market, honest) > 0
    check_books(market)


@FULL
@pytest.mark.parametrize(("behaviour", "paid"), [(NOISE, False), (HONEST, True)])
def test_a_worker_that_left_early_is_paid_at_the_end_unless_its_scores_are_bad(
    new_market: NewMarket, behaviour: object, paid: bool
) -> None:
    market = new_market(rounds=3, tasks_per_round=RUNS + 6, **scored())
    (leaver,) = hired(market, behaviour)  # type: ignore[arg-type]
    leaver.capacity = 3
    market.until(lambda: len([row for row in market.replicas(leaver) if row.state == ReplicaState.PAYABLE]) == 3)
    market.workers.remove(leaver)
    hired(market, HONEST)
    Scorer(market, passing=1.0, seed=5).play(passes=100)
    assert market.state() == JobState.FINISHED
    assert account_of(market, leaver).waiting == 0
    assert promised(market, leaver) == (3 * PRICE if paid else 0)
    assert not market.events("scores_convicted")
    check_books(market)


@FULL
def test_a_job_that_ends_before_anything_is_known_pays_all(new_market: NewMarket) -> None:
    market = new_market(rounds=9, tasks_per_round=4, **scored())
    (worker,) = hired(market, HONEST)
    auditor = Scorer(market, passing=1.0)
    market.until(lambda: len(market.rounds()) == 2)
    market.cancel()
    auditor.work()
    market.drive()
    assert account_of(market, worker).waiting == 0
    assert promised(market, worker) == account_of(market, worker).earned > 0
    check_books(market)


def test_no_auditor_can_withhold_what_waits_by_its_absence(new_market: NewMarket) -> None:
    market = new_market(rounds=9, tasks_per_round=4, **scored())
    (worker,) = hired(market, HONEST)
    market.until(lambda: len(market.rounds()) == 2)
    market.cancel()
    market.lapse(UNHEARD_S / 2)
    worker.turn()
    market.drive()
    assert promised(market, worker) == 0, "an auditor may come"
    market.lapse(UNHEARD_S)
    worker.turn()
    market.drive()
    assert account_of(market, worker).waiting == 0
    assert promised(market, worker) == account_of(market, worker).earned > 0
    check_books(market)


def test_no_liar_is_paid_while_an_auditor_is_at_work_after_the_end(new_market: NewMarket) -> None:
    market = new_market(rounds=9, tasks_per_round=4, **scored())
    (liar,) = hired(market, NOISE)
    auditor = Scorer(market, passing=1.0)
    market.until(lambda: len(market.rounds()) == 2)
    market.cancel()
    for _ in range(3):
        market.lapse(UNHEARD_S / 2)
        claimed = auditor.claim()
        assert claimed is not None
        auditor.answer(claimed)
        liar.turn()
        market.drive()
        assert promised(market, liar) == 0


INFINITE, HUGE = filled("w", float("inf")), scaled(1e9)


def pause_by_divergence(new_market: NewMarket, *others: Behaviour, **spec: object) -> tuple[MarketFixture, SimWorker]:
    """A newcomer whose first answer is infinite, and others that come after it was accepted."""
    market = new_market(rounds=1, tasks_per_round=1, **scored(), **spec)
    first = market.worker(INFINITE)
    first.request_work()
    for behaviour in others:
        market.worker(behaviour).request_work()
    market.drive()
    return market, first


@FULL
def test_an_answer_that_is_not_finite_waits_and_is_dropped_where_another_s_is(new_market: NewMarket) -> None:
    """The liar alone has a lease of the task; it is asked of the other, and nobody has to resume the job."""
    market, liar = pause_by_divergence(new_market, HONEST)
    market.play()
    assert [row.state for row in market.replicas(liar)] == [ReplicaState.DIVERGED]
    Scorer(market, passing=1.0).play()
    assert market.state() == JobState.FINISHED
    account = account_of(market, liar)
    assert (account.earned, account.waiting, account.voucher_signature) == (0, 0, None)
    assert promised(market, market.workers[1]) == PRICE
    check_books(market)


def test_honest_answers_that_all_diverge_wait_and_are_paid_at_the_end(new_market: NewMarket) -> None:
    market, first = pause_by_divergence(new_market, HONEST, norm_bound=1e-6)
    market.play()
    assert market.state() == JobState.PAUSED
    assert [promised(market, worker) for worker in market.workers] == [0, 0]
    market.cancel()
    market.drive()
    assert [promised(market, worker) for worker in market.workers] == [PRICE, PRICE]
    assert account_of(market, first).voucher_signature
    check_books(market)


ZERO = filled("w", 0.0)


@pytest.mark.parametrize(("behaviour", "dropped"), leave_to_full([(ZERO, False), (HONEST, True)]))
def test_a_free_stranger_drops_no_diverged_pay_by_an_answer_that_no_score_speaks_for(
    new_market: NewMarket, behaviour: Behaviour, dropped: bool
) -> None:
    """The first diverges; the other's answer is accepted, fails its score or passes, and nobody is cleared."""
    market, first = pause_by_divergence(new_market, behaviour)
    market.play()
    assert (account_of(market, first).waiting, market.events("pay_dropped")) == (PRICE, [])
    Scorer(market, passing=1.0, seed=1).play()
    assert market.state() == JobState.FINISHED
    assert promised(market, first) == (0 if dropped else PRICE)
    assert [event["operator"] for event in market.events("pay_dropped")] == [first.address] * dropped
    check_books(market)


@FULL
def test_a_diverged_worker_s_pay_is_dropped_once_the_other_is_cleared(new_market: NewMarket) -> None:
    market = new_market(rounds=3, tasks_per_round=RUNS + 10, **scored())
    liar, _honest = hired(market, INFINITE, HONEST)
    market.until(lambda: any(row.state == ReplicaState.DIVERGED for row in market.replicas(liar)))
    owed = account_of(market, liar).waiting
    auditor = Scorer(market, passing=1.0)
    for _ in range(30):
        if market.events("pay_released"):
            break
        assert account_of(market, liar).waiting >= owed > 0, "the other is a stranger, too"
        auditor.play(passes=1)
    assert (account_of(market, liar).earned, market.state()) == (0, JobState.RUNNING)
    assert {tuple(told["workers"]) for told in market.events("pay_dropped")} == {(liar.address,)}
    check_books(market)


@FULL
def test_two_free_identities_pause_no_job_by_answers_that_are_not_finite(new_market: NewMarket) -> None:
    """Each diverges alone, so neither speaks for the other; the third answer counts, and they are paid nothing."""
    market, first = pause_by_divergence(new_market, INFINITE, HONEST)
    market.play()
    liars, honest = market.workers[:2], market.workers[2]
    assert liars[0] is first
    Scorer(market, passing=1.0).play()
    assert market.state() == JobState.FINISHED
    assert [market.replicas(liar)[0].state for liar in liars] == [ReplicaState.DIVERGED] * 2
    assert [promised(market, liar) for liar in liars] == [0, 0]
    assert promised(market, honest) == PRICE
    check_books(market)


@pytest.mark.parametrize("networks", leave_to_full([1, 9]))
@pytest.mark.parametrize("spec", leave_to_full([{}, scored()]), ids=["fixed", "loss_change"])
def test_identities_of_one_network_pause_no_job_before_anybody_is_cleared(
    new_market: NewMarket, spec: dict[str, object], networks: int
) -> None:
    """Nine answer infinitely, one after the other or three at once; the twin: nine of as many networks pause it."""
    market = new_market(rounds=1, tasks_per_round=1, **spec)
    liars, honest = [market.worker(INFINITE) for _ in range(9)], [market.worker() for _ in range(3)]
    with market.context.begin() as work:
        for number, liar in enumerate(liars):
            work.get_one(Worker, liar.address).network = f"10.0.{number % networks}"
    for worker in honest:
        worker.capacity = 0
        worker.request_work()
    for liar in liars:
        liar.turn()
    market.until(lambda: market.state() != JobState.RUNNING or all(map(market.replicas, liars)), *liars, *honest)
    market.until(lambda: not market.all(Replica, Replica.state.in_(IN_FLIGHT)), *liars, *honest)
    assert market.state() == (JobState.PAUSED if networks > 1 else JobState.RUNNING)
    for worker in honest:
        worker.capacity = 1
    if networks == 1:
        market.play(*honest)
        Scorer(market, passing=1.0).play()
        assert market.state() == JobState.FINISHED
    check_books(market)


def pause_by_nine_networks(
    new_market: NewMarket, kind: Behaviour, **spec: Any
) -> tuple[MarketFixture, list[SimWorker]]:
    """A scored job in which nobody is cleared, paused by nine free identities, and two honest workers that come."""
    market = new_market(rounds=1, tasks_per_round=2, **scored(), **spec)
    liars = [market.worker(kind) for _ in range(9)]
    with market.context.begin() as work:
        for number, liar in enumerate(liars):
            work.get_one(Worker, liar.address).network = f"10.0.{number}"
    market.until(lambda: market.state() != JobState.RUNNING)
    return market, [market.worker(), market.worker()]


@FULL
@pytest.mark.parametrize("kind", leave_to_full([HUGE, INFINITE]), ids=["over the bound", "infinite"])
def test_an_auditor_ends_the_pause_of_free_identities_whose_answers_diverge(
    new_market: NewMarket, kind: Behaviour
) -> None:
    """Its own answer to the same task does not diverge. A further liar of the round then pauses nothing."""
    market, honest = pause_by_nine_networks(new_market, kind)
    (audit,) = audits_of(market)
    assert (market.state(), audit.reason, audit.state) == (JobState.PAUSED, SUSPECT, AuditState.DUE)
    for worker in honest:
        worker.capacity = 0
    market.worker(kind)
    auditor = Scorer(market, passing=1.0)
    auditor.play(passes=3)
    assert market.state() == JobState.RUNNING
    assert [row.reason for row in audits_of(market) if row.state == AuditState.FAILED] == [REFUTED]
    assert not market.all(Reputation, Reputation.failed > 0), "one machine's bits convict nobody here"
    for worker in honest:
        worker.capacity = 2
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert {worker.address for worker in market.workers if promised(market, worker)} <= {one.address for one in honest}
    check_books(market)


@FULL
def test_a_model_that_diverges_for_the_auditor_too_stays_paused(new_market: NewMarket) -> None:
    market, _honest = pause_by_nine_networks(new_market, HONEST, norm_bound=1e-6)
    auditor = Scorer(market, passing=1.0)
    auditor.play()
    auditor.work()
    assert market.state() == JobState.PAUSED
    assert {(row.reason, row.state) for row in audits_of(market)} == {(SUSPECT, AuditState.PASSED)}
    market.resume()
    assert market.state() == JobState.RUNNING
    check_books(market)


@FULL
@pytest.mark.parametrize("usable", leave_to_full([True, False]))
def test_an_auditor_that_lies_about_its_own_answer_costs_no_worker_its_pay_or_its_record(
    new_market: NewMarket, usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honest answers diverge, and it states that its own did not; or it states that a usable one did."""
    monkeypatch.setattr(Scorer, "_is_own_usable", lambda *_: usable)
    bound = {"norm_bound": 1e-6} if usable else {}
    market, _ = pause_by_nine_networks(new_market, HONEST if usable else HUGE, **bound)
    auditor = Scorer(market, passing=1.0)
    auditor.play(passes=6)
    auditor.work()
    assert not market.all(Reputation, Reputation.failed > 0)
    assert not market.events("pay_dropped")
    if not usable:
        assert market.state() == JobState.PAUSED
        market.resume()
    check_books(market)


def open_with_a_cleared_worker(new_market: NewMarket) -> tuple[MarketFixture, SimWorker, Scorer]:
    market = new_market(rounds=3, tasks_per_round=RUNS + 10, **scored())
    (worker,) = hired(market, HONEST)
    auditor = Scorer(market, passing=1.0)
    for _ in range(30):
        if promised(market, worker):
            return market, worker, auditor
        auditor.play(passes=1)
    raise AssertionError("it is never cleared")


@FULL
def test_a_task_that_diverged_goes_to_the_cleared_however_many_free_identities_wait(new_market: NewMarket) -> None:
    market, honest, auditor = open_with_a_cleared_worker(new_market)
    liars = list[SimWorker]()
    for _ in range(5):
        liars += [market.worker(INFINITE) for _ in range(4)]
        auditor.play(passes=1)
    assert market.state() == JobState.RUNNING
    assert ReplicaState.DIVERGED in {row.state for liar in liars for row in market.replicas(liar)}
    again = {task.id for task in market.tasks() if task.attempt}
    assert {row.worker for row in market.replicas() if row.task_id in again} == {honest.address}
    assert [promised(market, liar) for liar in liars] == [0] * len(liars)
    check_books(market)


@FULL
def test_where_one_of_the_cleared_diverges_too_the_job_waits_for_its_requester(new_market: NewMarket) -> None:
    """The twin: here the model diverges, and nobody further is asked."""
    market, honest, auditor = open_with_a_cleared_worker(new_market)
    honest.behaviour = auditor.computer.behaviour = INFINITE
    honest.capacity = 1
    for _ in range(12):
        market.worker(INFINITE)
    auditor.play(passes=100)
    assert market.state() == JobState.PAUSED
    attempts = Counter(
        (task.round, task.index) for task in market.all(Task, Task.state.in_([TaskState.DIVERGED, TaskState.FINAL]))
    )
    assert max(attempts.values()) <= 3
