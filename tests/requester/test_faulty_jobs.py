"""A failure that separate workers share pauses the job and strikes nobody; a lone claim strikes whoever makes it."""

from functools import partial

import pytest

from gradmarket.market.features.fault_reports import LEAST, MANY
from gradmarket.market.signing import address_of
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.market.wire.poll import FaultKind, StepFault
from requester.api.job_views import Standing, job_view
from requester.store import identities, jobs
from requester.store.tables import Job
from tests.kit.behaviour import HONEST, IDLE
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, key_of

BAD_LABEL = StepFault(
    kind=FaultKind.STEP_FAILED,
    node="node 3 (cross_entropy_loss.default)",
    partition="train-0",
    input="y",
    row=17,
    message="Target 7 is out of bounds.",
)
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


def claims(worker: SimWorker, fault: StepFault = BAD_LABEL) -> None:
    given = worker.give_up(worker.newest(), failed=True)
    worker.send_poll(given_up=[given.model_copy(update={"fault": fault})])
    worker.market.drive()


def test_a_failure_that_all_share_pauses_the_job_and_strikes_nobody(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    team = [market.worker() for _ in range(3)]
    market.gather()
    for worker in team:
        claims(worker)
    assert market.state() == JobState.PAUSED
    assert [market.strikes(worker) for worker in team] == [0, 0, 0]
    reason = market.the_job().reason
    for part in (
        "3 separate workers",
        "cross_entropy_loss",
        "partition train-0",
        "row 17",
        "Target 7",
        "correct the data",
    ):
        assert part in reason
    (told,) = market.events("paused")
    assert told["fault"] == BAD_LABEL.model_dump(mode="json")
    with market.reading() as reader:
        job = reader.get_one(Job, market.job)
        view = job_view(job, jobs.load_spec(job), None, Standing(0, {}, job.reason, {}))
    assert view.fault is not None
    assert (view.fault.fault, view.fault.parties) == (BAD_LABEL, 3)
    check_books(market)


@FULL
def test_the_same_workers_finish_another_job_meanwhile(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1})
    team = [market.worker() for _ in range(3)]
    market.gather()
    for worker in team:
        claims(worker)
    other = "00000000000000bb"
    market.also(other, 8)
    for _ in range(20):
        market.take_turns(*team)
        market.lapse(2.0)
    assert {job.id: job.state for job in market.all(Job)} == {market.job: "paused", other: "finished"}
    assert sum(market.earned().values()) == 3 * PRICE


def test_after_a_resume_it_is_tried_anew(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    team = [market.worker() for _ in range(3)]
    market.gather()
    for worker in team:
        claims(worker, StepFault(kind=FaultKind.LINK_FAILED, partition="train-0"))
    assert "then resume the job" in market.the_job().reason
    market.resume()
    assert market.the_job().fault is None
    market.play()
    assert market.state() == JobState.FINISHED
    assert [task.state for task in market.tasks()] == [TaskState.FAILED, TaskState.FINAL]
    check_books(market)


def test_a_lone_claim_is_a_strike_and_the_job_goes_on(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3)
    liar, *_honest = market.worker(IDLE), market.worker(), market.worker(), market.worker()
    market.gather()
    while len(market.replicas(liar)) == 0:
        market.play(passes=1)
    claims(liar)
    assert market.strikes(liar) == 1
    assert market.replica(liar).state == ReplicaState.ERROR
    market.play()
    assert market.state() == JobState.FINISHED


def test_wallets_of_one_operator_pause_nothing(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(**ALONE)
    first = market.worker(IDLE)
    market.gather()
    claims(first)
    for _ in range(3):
        wallet = market.worker(IDLE, payout=first.address)
        market.gather(wallet)
        assert market.replicas(wallet) == [], "one party has one place of an attempt"
    assert market.state() == JobState.RUNNING
    honest = market.worker()
    market.play(honest)
    assert market.state() == JobState.FINISHED


def proven(market: MarketFixture, count: int) -> list[SimWorker]:
    """Workers whose work was accepted in a job before."""
    team = [market.worker() for _ in range(count)]
    market.play(*team)
    assert market.state() == JobState.FINISHED
    return team


@FULL
def test_newcomers_that_claim_a_failure_do_not_pause_a_job_that_the_proven_can_compute(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    honest = proven(market, 3)
    market.job = "00000000000000bb"
    market.also(market.job, 8)
    sybils = [market.worker(IDLE) for _ in range(6)]
    for _ in range(4):
        market.gather(*sybils)
        for sybil in sybils:
            if any(held.state == ReplicaState.LEASED for held in sybil.held.values()):
                claims(sybil)
            sybil.receive_answer()
    assert market.state() == JobState.RUNNING
    market.play(*honest, passes=100)
    assert market.state() == JobState.FINISHED
    assert all(market.strikes(worker) == 0 for worker in honest)


@FULL
def test_the_claims_of_disproved_workers_are_not_counted_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=2)
    liars = [market.worker(IDLE) for _ in range(3)]
    market.gather(*liars)
    for liar in liars:
        claims(liar)
    assert market.state() == JobState.PAUSED, "nobody else was there"
    market.resume()
    honest = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2, *honest)
    market.lapse(60)
    market.gather(*liars)
    for liar in liars:
        if any(held.state == ReplicaState.LEASED for held in liar.held.values()):
            claims(liar)
    assert market.state() == JobState.RUNNING
    market.play(*honest, passes=100)
    assert market.state() == JobState.FINISHED
    assert len(market.events("paused")) == 1


def test_a_sibling_that_commits_outweighs_every_claim(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    one, two, honest = market.worker(IDLE), market.worker(IDLE), market.worker(HONEST)
    market.gather()
    claims(one)
    claims(two)
    assert market.state() == JobState.RUNNING, "a sibling is still at work"
    market.commit(honest)
    assert market.state() == JobState.RUNNING
    more = [market.worker(), market.worker()]
    market.play(honest, *more, passes=100)
    assert market.state() == JobState.FINISHED
    assert [market.strikes(worker) for worker in (one, two)] == [1, 1]
    check_books(market)


def test_a_silent_sibling_ends_the_wait_with_its_lease(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    one, two, silent = market.worker(), market.worker(), market.worker(IDLE)
    market.gather()
    claims(one)
    claims(two)
    assert market.state() == JobState.RUNNING
    market.lapse(21)
    assert market.state() == JobState.PAUSED
    assert [market.strikes(worker) for worker in (one, two, silent)] == [0, 0, 1]


def test_a_failed_job_of_one_replica_pauses_after_two_separate_claims(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(**ALONE)
    one, two = market.worker(), market.worker()
    for worker in (one, two):
        market.gather(one, two)
        (busy,) = [each for each in (one, two) if any(h.state == ReplicaState.LEASED for h in each.held.values())]
        claims(busy)
        busy.receive_answer()
        assert worker
    assert market.state() == JobState.PAUSED
    assert [market.strikes(worker) for worker in (one, two)] == [0, 0]


def claims_in_turn(market: MarketFixture, workers: list[SimWorker]) -> int:
    """Whoever of them gets a lease claims, as long as one does; returns the number of claims."""
    for made in range(100):
        market.gather(*workers)
        busy = [each for each in workers if any(h.state == ReplicaState.LEASED for h in each.held.values())]
        if not busy or market.state() != JobState.RUNNING:
            return made
        claims(busy[0])
        busy[0].receive_answer()
    raise AssertionError("they claim without an end")


@FULL
def test_a_few_proven_wallets_do_not_pause_a_job_of_one_replica_that_others_can_compute(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=40, **ALONE)
    liars = [market.worker() for _ in range(3)]
    market.until(lambda: all(market.earned().get(liar.address) for liar in liars), *liars)
    honest = market.worker()
    honest.send_poll(capacity=0)
    assert claims_in_turn(market, liars) == 3
    assert market.state() == JobState.RUNNING, "somebody is left who could be asked"
    market.until(lambda: market.earned().get(honest.address), honest)
    assert market.state() == JobState.RUNNING


@FULL
@pytest.mark.parametrize("known", [True, False])
def test_no_number_of_proven_wallets_pauses_a_job_of_one_replica_that_one_honest_worker_can_compute(  # type: ignore[no-untyped-def]
    new_market, known: bool
) -> None:
    market = new_market(rounds=60, **ALONE)
    honest = market.worker()
    if known:
        market.until(lambda: market.earned().get(honest.address), honest)
    liars = [market.worker() for _ in range(MANY * LEAST + 1)]
    for liar in liars:
        market.until(partial(earned_by, market, liar), liar)
    honest.send_poll(capacity=0)
    assert claims_in_turn(market, liars) == len(liars)
    assert market.state() == JobState.RUNNING, "somebody is left who could be asked"
    before = sum(market.earned().values())
    market.until(lambda: sum(market.earned().values()) > before, honest)
    assert market.events("paused") == []


def earned_by(market: MarketFixture, worker: SimWorker) -> int:
    return market.earned().get(worker.address, 0)


@FULL
def test_claims_wait_for_a_worker_that_is_at_work_in_the_job_for_longer_than_a_task_s_patience(new_market) -> None:  # type: ignore[no-untyped-def]
    deadlines = {"lease_s": 60, "wave_s": 5, "upload_s": 5}
    market = new_market(tasks_per_round=3, settings={"max_attempts": 1}, deadlines=deadlines, **ALONE)
    honest, liars = market.worker(IDLE), [market.worker() for _ in range(2)]
    market.gather(honest)
    assert claims_in_turn(market, liars) == 4, "each of both other tasks"
    market.clock.now += 50
    honest.behaviour = HONEST
    market.until(partial(earned_by, market, honest), honest)
    honest.behaviour = IDLE
    market.gather(honest)
    assert len(market.replicas(honest)) == 2, "it is at work in the second one"
    for _ in range(20):
        honest.send_poll(capacity=0)
        market.lapse(1.0)
    assert market.state() == JobState.RUNNING, "the third one waits for it"
    assert max(task.attempt for task in market.tasks()) == 0
    honest.behaviour = HONEST
    market.play(honest, passes=100)
    assert market.state() == JobState.FINISHED
    assert market.events("paused") == []


def test_a_failed_job_of_one_replica_pauses_once_all_of_the_proven_claim_it(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=40, **ALONE)
    team = [market.worker() for _ in range(3)]
    market.until(lambda: all(market.earned().get(worker.address) for worker in team), *team)
    assert claims_in_turn(market, team) == 3
    assert market.state() == JobState.PAUSED
    assert "3 separate workers" in market.the_job().reason
    assert [market.strikes(worker) for worker in team] == [0, 0, 0]


@FULL
def test_a_disproved_wallet_is_not_counted_again_under_another_operator(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3, **ALONE)
    liars = [market.worker(IDLE) for _ in range(2)]
    claims_in_turn(market, liars)
    assert market.state() == JobState.PAUSED, "nobody else was there"
    market.resume()
    honest = market.worker()
    market.until(lambda: len(market.rounds()) == 2, honest)
    market.lapse(60)
    with market.context.begin() as work:
        for number, liar in enumerate(liars, 1):
            key = address_of(key_of(f"throwaway {number}"))
            identities.sign_in(work, liar.address, key, None, market.clock(), number)
    assert claims_in_turn(market, liars) >= 2
    assert market.state() == JobState.RUNNING
    assert len(market.events("paused")) == 1
