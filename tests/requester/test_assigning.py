"""Who is drawn for a task, who is not, and what either is told."""

from typing import Any

import pytest
from books import check_books
from market_floor import CLASS, PRICE, Floor
from market_workers import HONEST, NOISE, SIGN_FLIP, SimWorker
from sqlalchemy import delete

from gradmarket.market.rules.assignment import window_s
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester import engine
from gradmarket.requester.stages import assign
from gradmarket.requester.store import newcomers, workers
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.tables import Account, Job, Worker


def leased(floor: Floor) -> set[str]:
    return {replica.worker for replica in floor.replicas()}


def test_no_reservation_no_lease_and_the_job_says_so(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    workers = [floor.worker(reserved=PRICE - 1) for _ in range(3)]
    floor.gather()
    assert floor.replicas() == []
    assert "no money is reserved" in floor.why_waiting()
    assert all("no money is reserved" in worker.waiting for worker in workers)


def test_a_reservation_covers_what_is_in_flight_and_what_was_earned(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=4, tasks_per_round=1)
    poor = floor.worker(reserved=2 * PRICE)
    rich = [floor.worker(), floor.worker(), floor.worker()]
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.account(poor).earned <= 2 * PRICE
    assert "no money is reserved" in poor.waiting or poor.waiting == "no job is running"
    assert sum(floor.account(worker).earned for worker in (poor, *rich)) == sum(floor.earned().values())
    check_books(floor)


def test_one_price_reserved_is_one_lease_at_a_time(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=3)
    for _ in range(3):
        floor.worker(reserved=PRICE).capacity = 3
    floor.gather()
    assert len(floor.replicas()) == 3
    assert all(len(floor.replicas(worker)) == 1 for worker in floor.workers)


def test_a_worker_holds_no_more_leases_than_it_asked_for(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=4, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    greedy = floor.worker()
    greedy.capacity = 2
    modest = [floor.worker()]
    floor.gather()
    assert len(floor.replicas(greedy)) == 2
    assert all(len(floor.replicas(worker)) == 1 for worker in modest)


def test_a_task_begins_whole_or_not_at_all(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=2)
    workers = [floor.worker() for _ in range(5)]
    floor.gather()
    idle = [worker for worker in workers if not floor.replicas(worker)]
    assert len(idle) == 2, "half a wave of the second task would wait for workers that wait in a split of the first"
    idle[0].hear()
    assert "fewer free workers" in idle[0].waiting
    floor.play()
    assert floor.state() == JobState.FINISHED


def test_a_worker_that_wants_a_higher_price_or_another_job_gets_none(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=2)
    dear, elsewhere, *content = [floor.worker() for _ in range(5)]
    dear.say(min_price=PRICE + 1)
    elsewhere.say(jobs=["00000000000000bb"])
    for worker in content:
        worker.say(min_price=PRICE, jobs=[floor.job])
    floor.drive()
    assert leased(floor) == {worker.address for worker in content}
    dear.hear()
    assert "higher price" in dear.waiting


@pytest.mark.parametrize("said", [{"jobs": ["00000000000000bb"]}, {"min_price": PRICE + 1}], ids=["job", "price"])
def test_who_serves_other_jobs_or_wants_more_keeps_no_newcomer_out(new_floor, said: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    known = [floor.worker() for _ in range(3)]
    floor.play(*known)
    assert floor.state() == JobState.FINISHED
    floor.job = "00000000000000cc"
    floor.also(floor.job, 8)
    for worker in known:
        worker.say(**said)
    newcomers = [floor.worker() for _ in range(3)]
    for worker in (*known, *newcomers):
        worker.say(**(said if worker in known else {}))
    floor.drive()
    assert leased(floor) >= {worker.address for worker in newcomers}


def test_a_worker_of_another_class_gets_none(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    other = floor.worker(determinism_class="another gpu")
    same = [floor.worker() for _ in range(3)]
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.earned() == {worker.address: PRICE for worker in same}
    assert floor.replicas(other) == []
    assert floor.the_job().determinism_class == CLASS


def test_a_task_stays_in_its_class_when_the_job_changes_to_another(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(deadlines={"lease_s": 300, "wave_s": 300, "upload_s": 30})
    for behaviour in (HONEST, NOISE, SIGN_FLIP):
        floor.worker(behaviour, determinism_class="old")
    floor.until(lambda: floor.events("split"))
    floor.lapse(100)
    newcomers = [floor.worker(determinism_class="new") for _ in range(3)]
    floor.gather(*newcomers)
    assert floor.the_job().determinism_class == "new", "the old class has no live worker left"
    assert all(floor.replicas(worker) == [] for worker in newcomers), "honest bits of another class look like a lie"
    floor.lapse(1000)
    floor.gather(*newcomers)
    assert {replica.worker for replica in floor.replicas() if replica.task_id == floor.tasks()[-1].id} == {
        worker.address for worker in newcomers
    }


def test_a_worker_without_a_class_gets_none(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    for _ in range(3):
        floor.worker(determinism_class="")
    floor.gather()
    assert floor.replicas() == []
    assert "needs 3 separate workers of one determinism class, has 0" in floor.why_waiting()


def test_sybils_of_one_payout_do_not_pin_the_class(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    first = floor.worker(determinism_class="sybil")
    for _ in range(9):
        floor.worker(determinism_class="sybil", payout=first.address)
    floor.gather()
    assert floor.the_job().determinism_class is None
    assert "has 1" in floor.why_waiting()
    honest = [floor.worker() for _ in range(3)]
    floor.play()
    assert floor.the_job().determinism_class == CLASS
    assert floor.earned() == {worker.address: PRICE for worker in honest}


def test_a_class_whose_workers_are_gone_is_given_up(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=2)
    gone = [floor.worker(determinism_class="gone") for _ in range(3)]
    floor.until(lambda: len(floor.rounds()) == 2)
    floor.workers = [floor.worker() for _ in range(3)]
    floor.lapse(60)
    floor.play(passes=100)
    assert floor.state() == JobState.FINISHED
    assert floor.earned() == {worker.address: PRICE for worker in (*gone, *floor.workers)}
    check_books(floor)


def test_suspended_workers_do_not_pin_the_class(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(settings={"max_strikes": 1})
    stallers = [floor.worker(determinism_class="staller") for _ in range(3)]
    floor.gather()
    for staller in stallers:
        staller.say(given_up=[staller.give_up(staller.newest())])
    honest = [floor.worker() for _ in range(3)]
    floor.play(*stallers, *honest, passes=100)
    assert floor.state() == JobState.FINISHED
    assert floor.earned() == {worker.address: PRICE for worker in honest}


def test_polling_ten_times_as_often_wins_no_more_tasks(new_floor) -> None:  # type: ignore[no-untyped-def]
    """While all who are idle have asked, the draw does not look at who asked first or how often."""
    floor = new_floor(rounds=12, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    eager, *calm = [floor.worker() for _ in range(4)]

    def turn(worker: SimWorker) -> None:
        worker.say(commitments=worker.commitments(), reveals=worker.reveals())

    for _ in range(200):
        if floor.state() != JobState.RUNNING:
            break
        for worker in [eager] * 10 + calm:
            turn(worker)
        floor.drive()
        for worker in floor.workers:
            worker.hear()
            held = worker.newest() if worker.held else None
            if held is not None and held.wanted and held.state == ReplicaState.AGREE:
                worker.upload(held)
                floor.drive()
    assert floor.state() == JobState.FINISHED
    assert floor.account(eager).earned <= 7 * PRICE
    assert sum(bool(floor.account(worker).earned) for worker in calm) >= 2


def test_a_draw_waits_a_moment_for_those_who_are_idle_but_have_not_asked_yet(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    for _ in range(4):
        worker = floor.worker(HONEST)
        worker.say(capacity=0)
    for worker in floor.workers[:3]:
        worker.say()
    waits = assign.run(floor.context, floor.job)
    assert waits == pytest.approx(window_s(4), abs=1e-6)
    assert floor.replicas() == []
    floor.clock.now += window_s(4) + 0.001
    assert assign.run(floor.context, floor.job) is None
    assert leased(floor) == {worker.address for worker in floor.workers[:3]}


def test_the_stage_rests_while_nobody_that_asks_may_be_drawn(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    for _ in range(3):
        floor.worker(reserved=0).say()
    wait, moved = engine.sweep_once(floor.context, assign)
    assert not moved
    assert 0 < wait <= floor.settings.sweep_s
    assert floor.task().state == TaskState.OPEN


def test_a_job_whose_money_lies_with_workers_that_are_gone_says_so(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    with floor.context.begin() as session:
        locked(session, Job, floor.job).deposited = 50 * PRICE
    floor.worker(reserved=30 * PRICE)
    floor.worker(reserved=20 * PRICE)
    floor.lapse(workers.LIVE_S + 1)
    here = floor.worker(reserved=0)
    here.ask()
    assert "50 gradients of the escrow are reserved for 2 workers that are gone: fund the job" in floor.why_waiting()
    with floor.context.begin() as session:
        locked(session, Job, floor.job).deposited = 51 * PRICE
    assert "gone" not in floor.why_waiting(), "there is money for one more"


def test_who_only_asks_has_no_account_and_its_turn_comes_in_the_job_that_it_wants(new_floor) -> None:  # type: ignore[no-untyped-def]
    """Many that work elsewhere on the same market would hold all of a small job's escrow."""
    floor = new_floor(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    worker, *others = [floor.worker() for _ in range(3)]
    with floor.context.begin() as session:
        session.execute(delete(Account))
    for other in others:
        other.say(jobs=["00000000000000bb"])
    worker.say(jobs=["00000000000000bb"])
    assert next_covered(floor) == []
    worker.say(jobs=[floor.job])
    floor.drive()
    assert floor.all(Account) == []
    assert next_covered(floor) == [worker.address]


def test_newcomers_that_gave_their_places_back_keep_no_money_from_who_could_take_them(new_floor) -> None:  # type: ignore[no-untyped-def]
    """Three that say a task cannot be computed, and go on asking, would hold up a job that only newcomers serve."""
    floor = new_floor()
    claimants = [floor.worker() for _ in range(3)]
    floor.gather()
    others = [floor.worker(reserved=0) for _ in range(3)]
    for worker in others:
        worker.ask()
    assert next_covered(floor) == [], "a round needs three"
    for worker in claimants:
        worker.say(given_up=[worker.give_up(worker.newest(), failed=True)])
        worker.ask()
    assert sorted(next_covered(floor)) == sorted(worker.address for worker in others)


def test_a_job_whose_newcomers_part_lies_with_who_stalled_says_so(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    with floor.context.begin() as session:
        locked(session, Job, floor.job).deposited = 8 * PRICE
    stallers = [floor.worker(reserved=PRICE) for _ in range(2)]
    with floor.context.begin() as session:
        for staller in stallers:
            row = session.get_one(Worker, staller.address)
            row.stalls, row.rests_until = 1, floor.clock() + 3600
    late = floor.worker(reserved=0)
    late.ask()
    assert "2 gradients of the escrow are reserved for 2 newcomers that stalled: fund the job" in floor.why_waiting()
    assert next_covered(floor) == []
    with floor.context.begin() as session:
        locked(session, Job, floor.job).deposited = 12 * PRICE
    assert "stalled" not in floor.why_waiting()
    assert next_covered(floor) == [late.address]


def next_covered(floor: Floor) -> list[str]:
    with floor.reading() as session:
        job = session.get_one(Job, floor.job)
        return list(newcomers.next_covered(session, job, floor.clock()))
