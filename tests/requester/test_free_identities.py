"""The attacks of identities that cost one sign-in, on a job whose newcomers work alone and whose proven ones vote."""

from collections.abc import Callable, Sequence

from gradmarket.market.rules.proof import Fault
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.store.tables import Replica, Reputation
from tests.features.audits.test_audits import clean_parameters
from tests.features.proven.test_proven import failed, open_job, prove
from tests.kit.behaviour import NOISE, filled, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker
from tests.requester.test_verdicts_replayed import changed, found, shown

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)
STEP_S = 2.0


def check_outcome(market: MarketFixture, new_market: NewMarket, honest: Sequence[SimWorker], rounds: int) -> None:
    """Everything merged is right, no honest answer is unpaid, and the others earned nothing."""
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=rounds)
    named = {worker.address for worker in honest}
    ends = {row.state for row in market.all(Replica) if row.worker in named and row.root is not None}
    assert ends == {ReplicaState.PAYABLE}
    assert set(market.earned()) <= named
    assert not failed(market) & named
    check_books(market)


def test_identities_that_compute_nothing_and_claim_any_capacity_earn_nothing(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2)
    instant = [market.worker(NOISE) for _ in range(3)]
    for worker in instant:
        worker.capacity = 20
    honest = [market.worker() for _ in range(2)]
    auditor.play()
    check_outcome(market, new_market, honest, rounds=2)


@FULL
def test_an_instant_liar_rests_longer_each_time_and_an_honest_worker_goes_on(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=20)
    liars, honest = [market.worker(NOISE) for _ in range(3)], market.worker()
    auditor.play(passes=100)
    assert market.state() == JobState.FINISHED
    own = {task.round for task in market.tasks() if task.used and task.uploader is None}
    assert market.earned() == {honest.address: (20 - len(own)) * PRICE}
    spent = max(row.ended_at or 0.0 for row in market.tasks()) - market.the_job().created_at
    most = sum(1 for k in range(12) if 30.0 * (2**k - 1) <= spent)
    assert all(1 <= len(market.replicas(liar)) <= most + 1 for liar in liars)


def test_a_ring_that_lies_in_each_vote_is_barred_and_leaves_nothing_wrong(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=3, replication={"audit": 1e-9})
    ring, honest = [market.worker(LIE) for _ in range(2)], [market.worker() for _ in range(4)]
    prove(market, *ring, *honest)
    auditor.play()
    check_outcome(market, new_market, honest, rounds=3)


@FULL
def test_a_flood_of_fresh_liars_delays_its_own_share_of_tasks_alone(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2)
    flood = [market.worker(NOISE) for _ in range(8)]
    honest = [market.worker() for _ in range(6)]
    prove(market, *honest)
    auditor.play()
    check_outcome(market, new_market, honest, rounds=2)
    tasks = {task.id: task for task in market.tasks()}
    liars = {worker.address for worker in flood}
    assert all(tasks[row.task_id].plan.first_wave == 1 for row in market.all(Replica) if row.worker in liars)


def play_with_fresh(market: MarketFixture, auditor: SimAuditor, leave: Callable[[SimWorker], None]) -> list[SimWorker]:
    """A fresh identity asks whenever the one before has a place; each leaves its own by `leave`."""
    fresh = [market.worker()]
    market.workers.remove(fresh[0])
    market.one_by_one = True
    for _ in range(400):
        if market.state() != JobState.RUNNING:
            break
        market.take_turns()
        fresh[-1].request_work()
        if market.replicas(fresh[-1]):
            leave(fresh[-1])
            fresh.append(market.worker())
            market.workers.remove(fresh[-1])
        market.lapse(STEP_S)
        auditor.work()
    return [one for one in fresh if market.replicas(one)]


@FULL
def test_fresh_identities_that_reserve_places_and_leave_cost_a_round_one_more_answer(new_market: NewMarket) -> None:
    """The first keeps its place for a whole lease; from then on a proven one takes over late places."""
    market, auditor = open_job(new_market, rounds=8, replication={"audit": 1e-9})
    honest = [market.worker() for _ in range(5)]
    prove(market, *honest)
    leavers = play_with_fresh(market, auditor, lambda _worker: None)
    first, *others = [row for leaver in leavers for row in market.replicas(leaver)]
    assert (first.state, first.expected_at) == (ReplicaState.EXPIRED, None)
    assert len(others) >= 2, "they are kept from no place"
    for left in others:
        (taken,) = [row for row in market.replicas() if row.task_id == left.task_id and row.worker != left.worker]
        assert (left.state, taken.state) == (ReplicaState.NOT_NEEDED, ReplicaState.PAYABLE)
        assert left.expected_at is not None
        assert left.expected_at - left.leased_at <= 4 * STEP_S
        assert (taken.committed_at or 0.0) - left.expected_at <= 3 * STEP_S
    check_outcome(market, new_market, honest, rounds=8)


@FULL
def test_a_newcomer_that_delivers_is_kept_from_its_proof_by_no_leaver(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=15, replication={"audit": 1e-9})
    honest = [market.worker() for _ in range(3)]
    prove(market, *honest)
    newcomer = market.worker()
    prove(market, newcomer, audits=1)
    play_with_fresh(market, auditor, lambda _worker: None)
    assert market.earned().get(newcomer.address, 0) >= PRICE
    check_books(market)


def test_a_made_up_class_gets_no_task_of_a_job_whose_auditor_has_another(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    made_up = [market.worker(determinism_class="made up") for _ in range(3)]
    market.gather()
    assert market.all(Replica) == []
    honest = market.worker()
    auditor.play()
    assert market.earned() == {honest.address: PRICE}
    assert {row.operator for row in market.all(Reputation)}.isdisjoint(worker.address for worker in made_up)


@FULL
def test_an_infinite_answer_of_a_newcomer_pauses_nothing(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    market.worker(filled("w", float("inf")))
    market.until(lambda: market.tasks()[0].state == TaskState.REFERRED)
    auditor.work()
    assert market.state() == JobState.RUNNING
    honest = market.worker()
    market.workers = [honest]
    auditor.play()
    assert market.earned() == {honest.address: PRICE}


def test_the_evidence_proves_a_referral_and_lies_in_it_are_found(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=3)
    liars, honest = [market.worker(LIE), market.worker(LIE)], market.worker()
    prove(market, *liars, honest)
    market.until(lambda: market.task().state == TaskState.REFERRED)
    auditor.work()
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    told = shown(market, market.tasks()[0])
    assert found(market, told) == set()
    liar = next(replica for replica in told["replicas"] if replica["root"] != told["root"])
    assert Fault.OTHER_TASK_ROOT in found(market, changed(told, "audit", "root", value=liar["root"]))
    assert Fault.REJECTED_UNPROVEN in found(market, changed(told, "audit", value=None))
    assert Fault.OTHER_PLAN in found(market, changed(told, "plan", "referred", value=False))
