"""A replica whose worker's machine failed is leased again where nobody else is left: no task waits for ever."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.ledger import Ledger
from gradmarket.market.rules.faults import find_returners
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.market.wire.poll import FaultKind, StepFault
from tests.databases import NewDatabase
from tests.kit.behaviour import COMMIT_AND_STALL, HONEST, IDLE, NOISE, WITHHOLDER
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture, market_folder
from tests.requester.market_workers import SimWorker
from tests.requester.test_faulty_jobs import claims

NewMarket = Callable[..., MarketFixture]
NO_MEMORY = StepFault(kind=FaultKind.OUT_OF_MEMORY, message="the card has no memory left")
BAD_LABEL = StepFault(kind=FaultKind.STEP_FAILED, node="node 3 (cross_entropy_loss.default)")
ALL_AT_ONCE: dict[str, Any] = {
    "replication": {"name": "fixed", "replicas": 3, "max_replicas": 3},
    "deadlines": {"lease_s": 20, "wave_s": 86_400, "upload_s": 10},
}
"""As many replicas as there may be; a wave that is short of one waits for a day."""


def leases(worker: SimWorker) -> list[ReplicaState]:
    return [replica.state for replica in worker.market.replicas(worker)]


def fail_alone(market: MarketFixture, fault: StepFault) -> SimWorker:
    """Two of the only three workers commit, and the third one's machine fails."""
    failing, *others = market.worker(), market.worker(), market.worker()
    market.gather()
    market.commit(*others)
    claims(failing, fault)
    return failing


def test_a_worker_whose_machine_failed_is_asked_again_where_no_other_is_left(new_market: NewMarket) -> None:
    market = new_market(**ALL_AT_ONCE)
    failing = fail_alone(market, NO_MEMORY)
    market.play()
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert market.task().attempt == 0
    assert sorted(leases(failing)) == [ReplicaState.ERROR, ReplicaState.PAYABLE]
    assert market.earned() == {worker.address: PRICE for worker in market.workers}
    check_books(market)


@FULL
def test_a_worker_whose_lease_lapsed_comes_back_after_its_rest(new_market: NewMarket) -> None:
    market = new_market(**ALL_AT_ONCE)
    silent, *others = market.worker(IDLE), market.worker(), market.worker()
    market.gather()
    market.commit(*others)
    market.lapse(21)
    silent.behaviour = HONEST
    market.play()
    assert market.state() == JobState.FINISHED
    assert sorted(leases(silent)) == [ReplicaState.EXPIRED, ReplicaState.PAYABLE]


def test_two_leases_of_an_attempt_are_the_most(new_market: NewMarket) -> None:
    market = new_market(**ALL_AT_ONCE)
    failing = fail_alone(market, NO_MEMORY)
    market.gather(failing)
    claims(failing, NO_MEMORY)
    market.gather(failing)
    assert leases(failing) == [ReplicaState.ERROR] * 2
    assert market.strikes(failing) == 2, "a claim costs a strike as before"


def test_a_failed_worker_is_not_asked_again_while_another_may_be(new_market: NewMarket) -> None:
    market = new_market(**ALL_AT_ONCE)
    failing = fail_alone(market, NO_MEMORY)
    another = market.worker()
    another.send_poll(capacity=0)
    market.gather(failing)
    assert leases(failing) == [ReplicaState.ERROR], "who waits for company of its choice would gain by it"
    market.play(*market.workers)
    assert leases(failing) == [ReplicaState.ERROR]
    assert leases(another) == [ReplicaState.PAYABLE]


@pytest.mark.parametrize("fault", [None, BAD_LABEL], ids=["declined", "the job's fault"])
def test_no_second_lease_for_a_choice_nor_for_what_would_fail_again(
    new_market: NewMarket, fault: StepFault | None
) -> None:
    market = new_market(**ALL_AT_ONCE)
    worker, *others = market.worker(), market.worker(), market.worker()
    market.gather()
    market.commit(*others)
    if fault is None:
        worker.send_poll(given_up=[worker.give_up(worker.newest())])
        market.drive()
    else:
        claims(worker, fault)
    market.gather(worker)
    assert len(leases(worker)) == 1
    assert "it had a replica of this attempt" in worker.waiting


def test_a_wallet_of_the_same_owner_gets_no_place_beside_it(new_market: NewMarket) -> None:
    market = new_market(**ALL_AT_ONCE)
    failing = fail_alone(market, NO_MEMORY)
    second = market.worker(payout=failing.address)
    market.gather(second)
    assert leases(second) == []


STATES = st.sampled_from([ReplicaState(state) for state in ReplicaState])
FAULTS = st.none() | st.builds(StepFault, kind=st.sampled_from(list(FaultKind)))


@given(st.lists(st.tuples(st.sampled_from("abc"), STATES, FAULTS), max_size=6))
def test_workers_that_committed_lease_or_left_never_return(
    replicas: list[tuple[Any, ReplicaState, StepFault | None]],
) -> None:
    returners = find_returners(replicas)
    for worker, state, _fault in replicas:
        if state in (ReplicaState.LEASED, ReplicaState.COMMITTED, ReplicaState.WITHHELD, ReplicaState.ABANDONED):
            assert worker not in returners
    assert all(sum(worker == one for one, _state, _fault in replicas) == 1 for worker in returners)


DEEDS = st.sampled_from(["turn", "ask", "idle", "stall", "withhold", "noise", "decline", "fail", "crash", "wait"])
MOODS = {"idle": IDLE, "stall": COMMIT_AND_STALL, "withhold": WITHHOLDER, "noise": NOISE}
FAILS = st.sampled_from(list(FaultKind))


def act(market: MarketFixture, worker: SimWorker, deed: str, kind: FaultKind) -> None:
    if deed in MOODS:
        worker.behaviour = MOODS[deed]
    elif deed in ("decline", "fail"):
        for held in [one for one in worker.held.values() if one.state == ReplicaState.LEASED]:
            given_up = worker.give_up(held, failed=deed == "fail")
            fault = StepFault(kind=kind) if deed == "fail" else None
            worker.send_poll(given_up=[given_up.model_copy(update={"fault": fault})])
    elif deed == "crash":
        market.crash()
    elif deed == "wait":
        market.lapse(21)
    else:
        worker.turn() if deed == "turn" else worker.request_work()
    market.drive()
    for each in market.workers:
        each.receive_answer()


@pytest.mark.hypothesis
@settings(max_examples=settings().max_examples // 15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    replicas=st.integers(1, 3),
    deeds=st.lists(st.tuples(st.integers(0, 2), DEEDS, FAILS), max_size=15),
)
def test_no_task_ever_has_nobody_left(
    market_ledger: Ledger, new_database: NewDatabase, replicas: int, deeds: list[tuple[int, str, FaultKind]]
) -> None:
    """As many workers as replicas, whatever they did: once they are honest the job ends, or pauses with a reason."""
    with ExitStack() as stack:
        folder = stack.enter_context(market_folder())
        only = {"replication": {"name": "fixed", "replicas": replicas, "max_replicas": replicas}}
        patient = {"max_strikes": 10**6, "max_attempts": 10**6}
        market = MarketFixture(Path(folder), market_ledger, new_database, settings=patient, **only)
        stack.callback(market.close)
        workers = [market.worker() for _ in range(replicas)]
        for worker in workers:
            worker.request_work()  # a worker that was never there hears nothing
        for index, deed, kind in deeds:
            act(market, workers[index % replicas], deed, kind)
        for worker in workers:
            worker.behaviour = HONEST
        market.play(passes=200)
        if market.state() == JobState.PAUSED:
            assert market.the_job().reason
            market.resume()
            market.play(passes=200)
        assert market.state() == JobState.FINISHED, market.why_waiting()
        assert all(task.state in (TaskState.FINAL, TaskState.FAILED) for task in market.tasks())
        check_books(market)
