"""The draw of workers for a task, and the reasons of those that are not drawn."""

from dataclasses import replace
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from sqlalchemy import delete, event, update

from gradmarket.market.rules import newcomers as rule
from gradmarket.market.rules.assignment import window_s
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester import engine
from requester.exchange import outbox
from requester.features import explanations
from requester.moves.candidates import is_asking
from requester.stages import assign
from requester.store import earned_rows, newcomers, unheard, workers
from requester.store.locks import lock_row
from requester.store.tables import Account, Job, Round, Worker
from requester.store.work import Work
from tests.databases import BOTH
from tests.kit.behaviour import COMMIT_AND_STALL, HONEST, NOISE, SIGN_FLIP
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import CLASS, DEADLINES, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker


def leased(market: MarketFixture) -> set[str]:
    return {replica.worker for replica in market.replicas()}


def test_a_worker_without_a_reservation_gets_no_lease_and_the_job_has_the_reason(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    workers = [market.worker(reserved=PRICE - 1) for _ in range(3)]
    market.gather()
    assert market.replicas() == []
    assert "no money is reserved" in market.why_waiting()
    assert all("no money is reserved" in worker.waiting for worker in workers)


def test_a_worker_that_leaves_is_told_no_reason_which_costs_ten_times_its_poll(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    worker = market.worker(reserved=0)
    market.gather()
    poll = replace(worker.newest_poll, request=worker.request.model_copy(update={"leaving": True}))
    assert worker.waiting
    assert not outbox.last_answer(market.context, poll).waiting


@BOTH
def test_a_reservation_beyond_the_earnings_is_named_to_its_worker_once_the_job_is_over(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    set_values(market, Job.claim_until, ends := int(market.clock.now) + 10**6)
    idle, exact = market.worker(reserved=PRICE), market.worker(reserved=0)
    market.gather()
    assert idle.list_unused() == exact.list_unused() == []
    assert idle.list_unused(leaving=True) == [market.job], "it leaves while the job runs"
    market.cancel()
    assert idle.list_unused() == [market.job]
    assert exact.list_unused() == exact.list_unused(leaving=True) == []
    market.clock.now = ends + 0.5
    assert idle.list_unused() == idle.list_unused(leaving=True) == [], "nothing is released once claims have ended"


@pytest.mark.databases("sqlite")
def test_a_worker_s_reservations_are_found_along_an_index(new_market) -> None:  # type: ignore[no-untyped-def]
    """Each poll of a worker that leaves asks for them."""
    market = new_market()
    worker, asked = market.worker(), list[Any]()
    with market.context.reading() as reader:
        connection = reader.session.connection()
        event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
        unheard.find_unused_reservations(reader, worker.address, True, market.clock.now)
        ((statement, values),) = asked
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    assert any("accounts_of_worker" in str(line) for line in plan)


def set_values(market: MarketFixture, column: Any, value: Any) -> None:
    with market.context.begin() as work:
        work.session.execute(update(column.class_).values({column: value}))


@FULL
def test_a_reservation_covers_what_is_in_flight_and_what_was_earned(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=4, tasks_per_round=1)
    poor = market.worker(reserved=2 * PRICE)
    rich = [market.worker(), market.worker(), market.worker()]
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.account(poor).earned <= 2 * PRICE
    assert "no money is reserved" in poor.waiting or poor.waiting == "no job is running"
    assert sum(market.account(worker).earned for worker in (poor, *rich)) == sum(market.earned().values())
    check_books(market)


def test_one_price_reserved_is_one_lease_at_a_time(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=3)
    for _ in range(3):
        market.worker(reserved=PRICE).capacity = 3
    market.gather()
    assert len(market.replicas()) == 3
    assert all(len(market.replicas(worker)) == 1 for worker in market.workers)


def test_a_worker_holds_no_more_leases_than_it_asked_for(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=4, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    greedy = market.worker()
    greedy.capacity = 2
    modest = [market.worker()]
    market.gather()
    assert len(market.replicas(greedy)) == 2
    assert all(len(market.replicas(worker)) == 1 for worker in modest)


def test_a_second_task_is_given_once_nobody_there_has_none(new_market) -> None:  # type: ignore[no-untyped-def]
    """Else one worker computes a round's tasks one after the other, and the others wait for it."""
    alone = {"name": "fixed", "replicas": 1, "max_replicas": 1}
    market = new_market(tasks_per_round=5, replication=alone)
    for _ in range(4):
        market.worker().send_poll(capacity=4)
    assert assign.run(market.context, market.job) is None
    assert sorted(len(market.replicas(worker)) for worker in market.workers) == [1, 1, 1, 2]


def test_a_task_begins_whole_or_not_at_all(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2)
    workers = [market.worker() for _ in range(5)]
    market.gather()
    idle = [worker for worker in workers if not market.replicas(worker)]
    assert len(idle) == 2, "half a wave of the second task would wait for workers that wait in a split of the first"
    idle[0].receive_answer()
    assert "fewer free workers" in idle[0].waiting
    market.play()
    assert market.state() == JobState.FINISHED


def test_a_worker_that_wants_a_higher_price_or_another_job_gets_none(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2)
    dear, elsewhere, *content = [market.worker() for _ in range(5)]
    dear.send_poll(min_price=PRICE + 1)
    elsewhere.send_poll(jobs=["00000000000000bb"])
    for worker in content:
        worker.send_poll(min_price=PRICE, jobs=[market.job])
    market.drive()
    assert leased(market) == {worker.address for worker in content}
    dear.receive_answer()
    assert "higher price" in dear.waiting


@pytest.mark.parametrize("said", [{"jobs": ["00000000000000bb"]}, {"min_price": PRICE + 1}], ids=["job", "price"])
def test_workers_of_other_jobs_or_higher_prices_keep_no_newcomer_out(new_market, said: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    known = [market.worker() for _ in range(3)]
    market.play(*known)
    assert market.state() == JobState.FINISHED
    market.job = "00000000000000cc"
    market.also(market.job, 8)
    for worker in known:
        worker.send_poll(**said)
    newcomers = [market.worker() for _ in range(3)]
    for worker in (*known, *newcomers):
        worker.send_poll(**(said if worker in known else {}))
    market.drive()
    assert leased(market) >= {worker.address for worker in newcomers}


@pytest.mark.parametrize("said", [{"min_price": PRICE + 1}, {"min_prices": {"00000000000000aa": 2**63 - 1}}])
def test_a_job_that_pays_too_little_for_its_workers_has_that_reason(  # type: ignore[no-untyped-def]
    new_market, said: dict[str, Any]
) -> None:
    market = new_market(rounds=2)
    known = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2, *known)
    for worker in known:
        worker.send_poll(**said)
    needs = (
        "needs 3 separate workers of one determinism class, has 0; 3 of 3: it asks for a higher price than the job pays"
    )
    assert market.why_waiting() == needs
    for worker in known:
        worker.send_poll()
    assert "needs" not in market.why_waiting()


def test_a_worker_of_another_class_gets_none(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    other = market.worker(determinism_class="another gpu")
    same = [market.worker() for _ in range(3)]
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: PRICE for worker in same}
    assert market.replicas(other) == []
    assert market.the_job().determinism_class == CLASS


def test_a_task_stays_in_its_class_when_the_job_changes_to_another(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(deadlines={"lease_s": 300, "wave_s": 300, "upload_s": 30})
    for behaviour in (HONEST, NOISE, SIGN_FLIP):
        market.worker(behaviour, determinism_class="old")
    market.until(lambda: market.events("split"))
    market.lapse(100)
    newcomers = [market.worker(determinism_class="new") for _ in range(3)]
    market.gather(*newcomers)
    assert market.the_job().determinism_class == "new", "the old class has no live worker left"
    assert all(market.replicas(worker) == [] for worker in newcomers), "honest bits of another class look like a lie"
    market.lapse(1000)
    market.gather(*newcomers)
    assert {replica.worker for replica in market.replicas() if replica.task_id == market.tasks()[-1].id} == {
        worker.address for worker in newcomers
    }


def test_a_worker_without_a_class_gets_none(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    for _ in range(3):
        market.worker(determinism_class="")
    market.gather()
    assert market.replicas() == []
    assert "needs 3 separate workers of one determinism class, has 0" in market.why_waiting()


def test_sybils_of_one_payout_do_not_pin_the_class(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    first = market.worker(determinism_class="sybil")
    for _ in range(9):
        market.worker(determinism_class="sybil", payout=first.address)
    market.gather()
    assert market.the_job().determinism_class is None
    assert "has 1" in market.why_waiting()
    honest = [market.worker() for _ in range(3)]
    market.play()
    assert market.the_job().determinism_class == CLASS
    assert market.earned() == {worker.address: PRICE for worker in honest}


def test_a_class_whose_workers_are_gone_is_given_up(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=2)
    gone = [market.worker(determinism_class="gone") for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2)
    market.workers = [market.worker() for _ in range(3)]
    market.lapse(60)
    market.play(passes=100)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: PRICE for worker in (*gone, *market.workers)}
    check_books(market)


@FULL
def test_suspended_workers_do_not_pin_the_class(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1})
    stallers = [market.worker(determinism_class="staller") for _ in range(3)]
    market.gather()
    for staller in stallers:
        staller.send_poll(given_up=[staller.give_up(staller.newest())])
    honest = [market.worker() for _ in range(3)]
    market.play(*stallers, *honest, passes=100)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: PRICE for worker in honest}


@FULL
def test_polling_ten_times_as_often_wins_no_more_tasks(new_market) -> None:  # type: ignore[no-untyped-def]
    """While all idle workers have asked, the draw ignores the order and number of their polls."""
    market = new_market(rounds=12, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    eager, *calm = [market.worker() for _ in range(4)]

    def turn(worker: SimWorker) -> None:
        worker.send_poll(commitments=worker.commitments(), reveals=worker.reveals())

    for _ in range(200):
        if market.state() != JobState.RUNNING:
            break
        for worker in [eager] * 10 + calm:
            turn(worker)
        market.drive()
        for worker in market.workers:
            worker.receive_answer()
            held = worker.newest() if worker.held else None
            if held is not None and held.wanted and held.state == ReplicaState.AGREE:
                worker.upload(held)
                market.drive()
    assert market.state() == JobState.FINISHED
    assert market.account(eager).earned <= 7 * PRICE
    assert sum(bool(market.account(worker).earned) for worker in calm) >= 2


def test_a_draw_waits_a_moment_for_idle_workers_that_have_not_asked_yet(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    for _ in range(4):
        worker = market.worker(HONEST)
        worker.send_poll(capacity=0)
    for worker in market.workers[:3]:
        worker.send_poll()
    waits = assign.run(market.context, market.job)
    assert waits == pytest.approx(window_s(4), abs=1e-6)
    assert market.replicas() == []
    market.clock.now += window_s(4) + 0.001
    assert assign.run(market.context, market.job) is None
    assert leased(market) == {worker.address for worker in market.workers[:3]}


def test_the_stage_rests_while_nobody_that_asks_may_be_drawn(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    for _ in range(3):
        market.worker(reserved=0).send_poll()
    wait, moved = engine.sweep_once(market.context, assign)
    assert not moved
    assert 0 < wait <= market.settings.sweep_s
    assert market.task().state == TaskState.OPEN


def test_a_job_whose_money_lies_with_gone_workers_has_that_reason(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    with market.context.begin() as work:
        lock_row(work, Job, market.job).deposited = 50 * PRICE
    market.worker(reserved=30 * PRICE)
    market.worker(reserved=20 * PRICE)
    market.lapse(workers.LIVE_S + 1)
    here = market.worker(reserved=0)
    here.request_work()
    assert "50 gradients of the escrow are reserved for 2 workers that are gone: fund the job" in market.why_waiting()
    with market.context.begin() as work:
        lock_row(work, Job, market.job).deposited = 51 * PRICE
    assert "gone" not in market.why_waiting(), "there is money for one more"


def test_a_polling_worker_has_no_account_until_its_turn_in_a_job_it_wants(new_market) -> None:  # type: ignore[no-untyped-def]
    """Many that work elsewhere on the same market would hold all of a small job's escrow."""
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    worker, *others = [market.worker() for _ in range(3)]
    with market.context.begin() as work:
        work.session.execute(delete(Account))
    for other in others:
        other.send_poll(jobs=["00000000000000bb"])
    worker.send_poll(jobs=["00000000000000bb"])
    assert next_covered(market) == []
    worker.send_poll(jobs=[market.job])
    market.drive()
    assert market.all(Account) == []
    assert next_covered(market) == [worker.address]


def test_newcomers_that_gave_their_places_back_keep_no_money_from_the_others(new_market) -> None:  # type: ignore[no-untyped-def]
    """Three that claim a task cannot be computed, and go on asking, would hold up a job that only newcomers serve."""
    market = new_market()
    claimants = [market.worker() for _ in range(3)]
    market.gather()
    others = [market.worker(reserved=0) for _ in range(3)]
    for worker in others:
        worker.request_work()
    assert next_covered(market) == [], "a round needs three"
    for worker in claimants:
        worker.send_poll(given_up=[worker.give_up(worker.newest(), failed=True)])
        worker.request_work()
    assert sorted(next_covered(market)) == sorted(worker.address for worker in others)


@FULL
def test_a_split_reserves_for_more_newcomers_than_a_round_begins_with(new_market) -> None:  # type: ignore[no-untyped-def]
    """Otherwise a cheat at work, and workers that joined after it, keep the money from those that would outvote it."""
    market = new_market(replication={"name": "fixed", "replicas": 3, "max_replicas": 7})
    for behaviour in (NOISE, COMMIT_AND_STALL, COMMIT_AND_STALL):
        market.worker(behaviour, reserved=PRICE)
    market.gather()
    honest = [market.worker(reserved=0) for _ in range(4)]
    for _ in range(40):
        market.lapse(1)
        market.take_turns()
        with market.context.begin() as work:
            for address in newcomers.next_covered(work, work.get_one(Job, market.job), market.clock()):
                earned_rows.load_or_create_account(work, market.job, address).reserved = PRICE
    assert [row["more"] for row in market.events("split")] == [2, 2]
    assert market.earned() == {worker.address: PRICE for worker in honest}
    assert market.events("task_failed") == []


@pytest.mark.parametrize("said", [{"capacity": 0}, {"jobs": ["00000000000000bb"]}], ids=["no room", "another job"])
def test_covered_newcomers_that_cannot_be_drawn_keep_no_money_from_others(new_market, said: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    """They would hold up a job that only newcomers serve, and never risk a stall."""
    market = new_market()
    for _ in range(3):
        market.worker().send_poll(**said)
    others = [market.worker(reserved=0) for _ in range(3)]
    for worker in others:
        worker.request_work()
    assert sorted(next_covered(market)) == sorted(worker.address for worker in others)


def test_covered_newcomers_of_one_payout_leave_the_other_places_to_others(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    first = market.worker()
    for worker in (first, *[market.worker(payout=first.address) for _ in range(2)]):
        worker.request_work()
    others = [market.worker(reserved=0) for _ in range(2)]
    for worker in others:
        worker.request_work()
    assert sorted(next_covered(market)) == sorted(worker.address for worker in others)


def test_a_job_whose_newcomers_part_lies_with_stalled_ones_has_that_reason(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    with market.context.begin() as work:
        lock_row(work, Job, market.job).deposited = 8 * PRICE
    stallers = [market.worker(reserved=PRICE) for _ in range(2)]
    with market.context.begin() as work:
        for staller in stallers:
            row = work.get_one(Account, (market.job, staller.address))
            row.stalls, row.rests_until = 1, market.clock() + 3600
    late = market.worker(reserved=0)
    late.request_work()
    words = "2 gradients of the escrow are reserved for 2 newcomers that stalled: fund the job"
    assert f"{words}, or one more gets its own each 7 min" in market.why_waiting()
    assert next_covered(market) == []
    opened, watched_s = market.rounds()[0].opened_at, rule.compute_watched_s(DEADLINES["lease_s"])
    with market.context.begin() as work:
        work.get_one(Round, (market.job, 0)).opened_at = market.clock() - watched_s
    assert next_covered(market) == [late.address], "the round stands"
    with market.context.begin() as work:
        work.get_one(Account, (market.job, stallers[0].address)).reserved_at = market.clock() - 1.0
    assert next_covered(market) == [], "a price was reserved meanwhile"
    with market.context.begin() as work:
        work.get_one(Round, (market.job, 0)).opened_at = opened
    with market.context.begin() as work:
        lock_row(work, Job, market.job).deposited = 12 * PRICE
    assert "stalled" not in market.why_waiting()
    assert next_covered(market) == [late.address]


def asking_of(work: Work, network: str, count: int, now: float, **changes: Any) -> set[str]:
    """So many newcomers of a network ask, each with a payout address of its own; returns their addresses."""
    made = {to_checksum_address(keccak(text=f"{network} {number}")[:20]) for number in range(count)}
    own = {"network": network, "determinism_class": CLASS, "capacity": 1, "asking_until": now + 40} | changes
    times = {"seen_at": now, "joined_at": now}
    lists: dict[str, Any] = {"jobs": [], "least_prices": {}}
    work.add(
        *(
            Worker(**{**times, **lists, **own, "address": address, "payout": address, "operator": address})
            for address in made
        )
    )
    return made


def test_a_thousand_of_one_network_leave_the_others_their_turn(new_market) -> None:  # type: ignore[no-untyped-def]
    """More than are looked at: also those that serve another job, or want more than this one pays, are not."""
    market = new_market(tasks_per_round=8)
    now, market.driven = market.clock(), True
    with market.context.begin() as work:
        job = lock_row(work, Job, market.job)
        job.determinism_class, job.deposited = CLASS, 4 * 24 * PRICE
        sybils = asking_of(work, "203.0.113.0/24", 1000, now)
        honest = {worker for n in range(5) for worker in asking_of(work, f"198.51.{n}.0/24", 1, now)}
        for n in range(newcomers.SAMPLE):
            asking_of(work, f"192.0.{n}.0/24", 1, now, jobs=["00000000000000bb"])
            asking_of(work, f"192.1.{n}.0/24", 1, now, least_prices={market.job: PRICE + 1})
    for _ in range(3):
        covered = set(next_covered(market))
        assert honest < covered <= honest | sybils
        assert len(covered) == 24


def next_covered(market: MarketFixture) -> list[str]:
    with market.reading() as reader:
        job = reader.get_one(Job, market.job)
        return list(newcomers.next_covered(reader, job, market.clock()))


def test_a_short_poll_beside_a_waiting_one_keeps_the_worker_asking(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=1)
    worker = market.worker()
    worker.send_poll(wait_s=20.0)
    until = market.row(worker).asking_until
    worker.send_poll(wait_s=0.0)
    assert market.row(worker).asking_until == until > market.clock()
    worker.send_poll(capacity=0, wait_s=0.0)
    assert market.row(worker).capacity == 0


def test_a_busy_worker_in_a_waiting_poll_may_ask_in_a_short_one(new_market) -> None:  # type: ignore[no-untyped-def]
    """Else a worker whose step took long gets its next lease only once its waiting poll ends."""
    alone = {"name": "fixed", "replicas": 1, "max_replicas": 1}
    market = new_market(rounds=1, tasks_per_round=1, replication=alone)
    workers = [market.worker(), market.worker()]
    market.gather()
    busy, idle = sorted(workers, key=lambda worker: not worker.held)
    market.lapse(10.0)
    busy.send_poll(capacity=0, wait_s=20.0)
    idle.send_poll(capacity=0, wait_s=20.0)
    until = market.clock() + 20.0
    busy.send_poll(capacity=1, wait_s=0.0)
    assert market.row(busy).asking_until == until > market.row(idle).asking_until


def test_a_job_whose_workers_ask_for_no_work_has_that_reason(new_market) -> None:  # type: ignore[no-untyped-def]
    """As after a restore: they hold vouchers that the books do not know, and work for this service no further."""
    market = new_market(rounds=2)
    known = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2, *known)
    for worker in known:
        worker.send_poll(capacity=0)
    assert market.why_waiting() == ""
    market.clock.now += 31
    for worker in known:
        worker.send_poll(capacity=0)
    reason = "it asks for no work and holds none: its own log says why"
    assert market.why_waiting() == f"an open task has no worker that may take it; 3 of 3: {reason}"


@pytest.mark.parametrize(("until", "capacity", "asking"), [(11.0, 1, True), (10.0, 1, False), (11.0, 0, False)])
def test_a_worker_asks_before_its_poll_ends_and_with_room(until: float, capacity: int, asking: bool) -> None:
    assert is_asking(Worker(asking_until=until, capacity=capacity), now=10.0) is asking


def test_a_worker_that_only_signed_in_decides_nothing(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    worker = market.worker()
    assert market.row(worker).capacity == 0, "it asks for no lease"
    with market.context.reading() as reader:
        assert workers.list_deciding_workers(reader, reader.get_one(Job, market.job), market.clock()) == []
    worker.send_poll()
    with market.context.reading() as reader:
        (seen,) = workers.list_deciding_workers(reader, reader.get_one(Job, market.job), market.clock())
    assert seen.address == worker.address


def test_a_worker_is_at_work_while_it_holds_a_lease(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    everybody = [market.worker().address for _ in range(3)]

    def is_at_work() -> bool:
        with market.context.reading() as reader:
            return explanations.any_in_flight(reader, everybody)

    assert not is_at_work()
    market.gather()
    assert is_at_work()
    market.play()
    assert not is_at_work()
