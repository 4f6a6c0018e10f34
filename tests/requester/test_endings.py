"""Rounds that close early, and jobs that end: commitments in time are judged and paid, the rest is cancelled."""

from datetime import UTC, datetime

import pytest

from gradmarket.market.errors import Conflict
from gradmarket.market.rules.lifecycle import AWAITS_TOP_UP
from gradmarket.market.terms import Digest, JobState, ReplicaState, RoundState, TaskState
from graphdoc import tensors
from requester.api.job_views import read_standing
from requester.features.top_ups import resume_funded_job
from requester.store.tables import Job, Replica, Round, Task
from tests.kit.behaviour import IDLE, NOISE, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture


def committed_and_leased(market: MarketFixture) -> None:
    """Two tasks: the first has two commitments and one lease, the second three leases."""
    for _ in range(6):
        market.worker(IDLE)
    market.gather()
    by_task = {
        task.index: [w for w in market.workers if market.replica(w).task_id == task.id] for task in market.tasks()
    }
    market.first, market.second = by_task[0], by_task[1]
    for worker in market.first[:2]:
        worker.behaviour = scaled(1.0)
        worker.computed(worker.newest())
    market.commit(*market.first[:2])


def test_a_cancelled_job_judges_and_pays_what_was_committed(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2)
    committed_and_leased(market)
    market.cancel()
    assert market.state() == JobState.CANCELLED
    assert [task.state for task in market.tasks()] == [TaskState.REVEALING, TaskState.CANCELLED]
    assert {market.replica(worker).state for worker in (*market.second, market.first[2])} == {ReplicaState.NOT_NEEDED}
    assert [market.strikes(worker) for worker in market.workers] == [0] * 6
    for _ in range(3):
        market.take_turns()
    assert market.tasks()[0].state == TaskState.ACCEPTED
    assert market.earned() == {worker.address: PRICE for worker in market.first[:2]}
    assert {worker.newest().state for worker in market.second} == {ReplicaState.NOT_NEEDED}
    assert len(market.rounds()) == 1
    check_books(market)


def test_a_job_cancelled_in_a_split_asks_nobody_further(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    for factor in (2.0, 3.0, 4.0):
        market.worker(scaled(factor))
    market.gather()
    market.commit()
    market.cancel()
    market.reveal()
    (task,) = market.tasks()
    assert task.state == TaskState.FAILED
    assert {replica.state for replica in market.replicas()} == {ReplicaState.INCONCLUSIVE}
    assert market.earned() == {}


def test_a_job_cancelled_while_a_payload_is_awaited_pays_for_it(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    workers = [market.worker() for _ in range(3)]
    market.gather()
    market.commit()
    market.reveal()
    market.cancel()
    market.take_turns(*workers)
    assert market.earned() == {worker.address: PRICE for worker in workers}
    assert market.task().state == TaskState.ACCEPTED
    assert market.rounds()[0].state == RoundState.OPEN
    check_books(market)


def test_a_job_ends_at_its_date_and_its_leases_are_not_needed(new_market) -> None:  # type: ignore[no-untyped-def]
    date = datetime.fromtimestamp(1_800_000_015, UTC)
    market = new_market(stop=[{"date": date.isoformat()}])
    workers = [market.worker(IDLE) for _ in range(3)]
    market.gather()
    market.lapse(16)
    assert market.state() == JobState.FINISHED
    assert "date" in market.the_job().reason
    assert {market.replica(worker).state for worker in workers} == {ReplicaState.NOT_NEEDED}
    assert market.task().state == TaskState.CANCELLED


def test_a_job_ends_when_its_sum_is_spent(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=9, stop=[{"spent": str(6 * PRICE)}])
    for _ in range(3):
        market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert len(market.rounds()) == 2
    assert "spent" in market.the_job().reason


def test_a_job_pauses_when_the_escrow_does_not_cover_a_round(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=9)
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.budget = job.deposited = 4 * PRICE - 1
    for _ in range(3):
        market.worker()
    market.play()
    assert market.state() == JobState.PAUSED
    assert "fund the job" in market.why_waiting()
    assert sum(market.earned().values()) == 3 * PRICE
    assert remedy(market).startswith(f"gradmarket job fund {market.job} ")
    with pytest.raises(Conflict, match="the deposit is spent"):
        market.resume()
    assert market.state() == JobState.PAUSED


@FULL
def test_a_job_that_was_short_of_money_goes_on_once_it_is_funded(new_market) -> None:  # type: ignore[no-untyped-def]
    """From the promise of more on it runs, and waits for the deposit; no other command is needed."""
    market = new_market(rounds=2)
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.budget = job.deposited = 4 * PRICE
    for _ in range(3):
        market.worker()
    market.play()
    assert market.state() == JobState.PAUSED
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.budget += 10 * PRICE
        resume_funded_job(market.context, work, job)
    market.play()
    assert (market.state(), market.why_waiting()) == (JobState.RUNNING, AWAITS_TOP_UP)
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.deposited = job.budget
    market.play()
    assert market.state() == JobState.FINISHED
    assert sum(market.earned().values()) == 6 * PRICE


def remedy(market: MarketFixture) -> str:
    with market.context.reading() as reader:
        job = reader.get_one(Job, market.job)
        return read_standing(reader, job, market.context.clock()).remedy


def test_a_round_closes_at_its_least_tasks_and_late_ones_are_paid_but_not_used(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2, min_tasks=1, rounds=1)
    prompt = [market.worker() for _ in range(6)]
    market.gather()
    first, second = market.tasks()
    late = [worker for worker in prompt if market.replica(worker).task_id == second.id]
    market.commit(*late)
    market.until(lambda: market.state() == JobState.FINISHED, *(worker for worker in prompt if worker not in late))
    for _ in range(3):
        market.play(*late)
    first, second = market.tasks()
    assert (first.state, first.used) == (TaskState.FINAL, True)
    assert (second.state, second.used) == (TaskState.FINAL, False)
    assert market.earned() == {worker.address: PRICE for worker in prompt}
    assert not any(market.context.blobs.has(Digest(task.payload)) for task in (first, second))
    alone = new_market(rounds=1)
    for _ in range(3):
        alone.worker()
    alone.play()
    assert market.final_parameters() == alone.final_parameters()
    check_books(market)


def test_a_closed_round_calls_off_what_nobody_committed_to(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2, min_tasks=1, rounds=2)
    workers = [market.worker() for _ in range(6)]
    market.gather()
    second = market.tasks()[1]
    idle = [worker for worker in workers if market.replica(worker).task_id == second.id]
    market.until(lambda: len(market.rounds()) == 2, *(worker for worker in workers if worker not in idle))
    assert {replica.state for replica in market.all(Replica, Replica.task_id == second.id)} == {ReplicaState.NOT_NEEDED}
    assert [task.state for task in market.tasks(Task.id == second.id)] == [TaskState.CANCELLED]


@FULL
def test_a_split_in_a_closed_round_asks_nobody_further(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2, min_tasks=1, rounds=2)
    workers = [market.worker() for _ in range(6)]
    market.gather()
    second = market.tasks()[1]
    split = [worker for worker in workers if market.replica(worker).task_id == second.id]
    for worker in split:
        worker.behaviour = NOISE
    market.commit(*split)
    market.until(lambda: len(market.rounds()) == 2, *(worker for worker in workers if worker not in split))
    market.reveal(*split)
    market.drive()
    assert [task.state for task in market.tasks(Task.id == second.id)] == [TaskState.FAILED]
    assert len(market.tasks(Task.round == 0)) == 2


def test_a_paused_job_gives_no_lease_and_still_judges(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=2)
    workers = [market.worker() for _ in range(3)]
    market.gather()
    market.commit()
    with market.context.begin() as work:
        work.get_one(Job, market.job).state = JobState.PAUSED
    for _ in range(4):
        market.take_turns(*workers)
    assert market.task().state == TaskState.ACCEPTED
    assert market.earned() == {worker.address: PRICE for worker in workers}
    market.resume()
    market.play()
    assert market.state() == JobState.FINISHED


@FULL
def test_parameters_that_do_not_change_are_not_dropped_while_a_round_needs_them(new_market) -> None:  # type: ignore[no-untyped-def]
    """Equal content is one blob: another round may need it still."""
    market = new_market(rounds=6, optimizer={"name": "sgd", "lr": 1e-30})
    for _ in range(3):
        market.worker()
    market.play(passes=100)
    assert market.state() == JobState.FINISHED
    assert {row.optimizer_state for row in market.rounds()[:-1]} == {""}
    assert tensors.unpack_tensors(market.context.blobs.read(Digest(market.final_parameters())))["n"] == 6


@FULL
def test_old_parameters_are_dropped_and_checkpoints_kept(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=7, settings={"keep_parameters_every": 3})
    for _ in range(3):
        market.worker()
    market.play(passes=100)
    kept = [row.number for row in market.rounds() if market.context.blobs.has(Digest(row.updated))]
    assert kept == [2, 4, 5, 6]
    assert market.context.blobs.has(Digest(market.all(Round, Round.number == 0)[0].parameters))
