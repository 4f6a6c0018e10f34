"""A round merges without its slow tasks: their rows are not lost, honest answers are paid, and the bits are exact."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gradmarket.market.rules import lifecycle as rule
from gradmarket.market.terms import Digest, JobState, ReplicaState, RoundState, TaskState
from requester.features.late import paces
from requester.moves import replay, snapshots
from requester.store import disclosure
from requester.store.tables import Job, Task
from tests.kit.behaviour import IDLE, NOISE, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
LATE = ALONE | {"sampling": "epochs", "tasks_per_round": 3, "min_tasks": 2, "staleness": 1}
PAID_ONLY = LATE | {"staleness": 0}


def slow_one(market: MarketFixture) -> tuple[list[SimWorker], SimWorker, Task]:
    """Three hold the tasks of the first round; two answer, and it is merged."""
    workers = [market.worker() for _ in range(3)]
    market.gather()
    task = market.tasks()[-1]
    slow = next(worker for worker in workers if market.replica(worker).task_id == task.id)
    fast = [worker for worker in workers if worker is not slow]
    market.until(lambda: len(market.rounds()) == 2, *fast)
    return fast, slow, task


def in_merge(market: MarketFixture, number: int) -> list[int]:
    return [task.index for task in market.tasks() if task.used and task.merge_round == number]


def the(market: MarketFixture, task: Task) -> Task:
    return next(row for row in market.tasks() if row.id == task.id)


@FULL
def test_a_late_answer_is_paid_and_merged_in_the_next_round(new_market: NewMarket) -> None:
    market = new_market(rounds=3, **LATE)
    _fast, slow, task = slow_one(market)
    assert in_merge(market, 0) == [0, 1]
    assert the(market, task).merge_round == 1
    assert [row.index for row in market.tasks(Task.round == 1)] == [3, 4]  # with the late one, three
    assert market.replica(slow).state == ReplicaState.LEASED
    market.until(lambda: the(market, task).state in (TaskState.ACCEPTED, TaskState.FINAL), slow)
    assert market.earned()[slow.address] == PRICE
    market.play()
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert 2 in in_merge(market, 1)
    assert the(market, task).state == TaskState.FINAL
    assert in_merge(market, 2)[-1] == max(row.index for row in market.tasks())  # the last round waits for all
    assert not any(market.context.blobs.has(Digest(row.payload)) for row in market.tasks() if row.payload)
    check_books(market)


@FULL
def test_a_round_does_not_leave_a_task_twice(new_market: NewMarket) -> None:
    """A worker that holds its place for ever holds up one round, for its lease, and is paid nothing."""
    market = new_market(rounds=4, **LATE)
    fast, slow, _task = slow_one(market)
    slow.behaviour = IDLE
    for _ in range(8):
        market.take_turns(*fast)
        market.lapse(0.1)
    assert [row.number for row in market.rounds()] == [0, 1]
    assert {row.state for row in market.tasks(Task.round == 1)} == {TaskState.ACCEPTED}
    market.play(*fast)
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert market.replicas(slow)[0].state == ReplicaState.EXPIRED
    assert market.strikes(slow) == 1
    assert slow.address not in market.earned()
    assert 2 in in_merge(market, 1)
    check_books(market)


@FULL
def test_where_nothing_late_is_merged_it_is_paid_and_its_rows_come_first(new_market: NewMarket) -> None:
    market = new_market(rounds=3, **PAID_ONLY)
    workers = [market.worker() for _ in range(3)]
    market.gather()
    task = market.tasks()[-1]
    slow = next(worker for worker in workers if market.replica(worker).task_id == task.id)
    fast = [worker for worker in workers if worker is not slow]
    market.until(lambda: the(market, task).state != TaskState.COMMITTING, slow)  # committed, and not uploaded
    market.until(lambda: len(market.rounds()) == 2, *fast)
    assert [row.index for row in market.tasks(Task.round == 1)] == [2, 3, 4]
    market.until(lambda: the(market, task).state == TaskState.FINAL, slow)
    assert market.earned()[slow.address] == PRICE
    assert not the(market, task).used
    market.play()
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert 2 in in_merge(market, 1)  # it was due
    check_books(market)


def test_a_task_that_nobody_works_on_begins_anew_from_the_next_parameters(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **LATE | {"min_tasks": 1})
    fast = [market.worker() for _ in range(2)]
    market.gather()
    market.until(lambda: len(market.rounds()) == 2, fast[0])
    (event,) = market.events("tasks_left")
    late, again = (market.tasks(Task.id.in_(event[what]))[0] for what in ("late", "again"))
    assert market.replica(fast[1]).task_id == late.id
    assert (again.index, again.state) == (2, TaskState.CANCELLED)
    (anew,) = market.tasks(Task.index == 2, Task.round == 1)
    assert anew.offer.parameters != again.offer.parameters
    market.play(*fast)
    assert market.state() == JobState.FINISHED, market.why_waiting()
    uses = Counter(row.index for row in market.tasks() if row.used)
    assert set(uses.values()) == {1}


@pytest.mark.parametrize("lie", leave_to_full([NOISE, scaled(-1.0)]))
def test_a_late_lie_is_outvoted_and_its_rows_are_merged_all_the_same(new_market: NewMarket, lie: Any) -> None:
    three = {"name": "fixed", "replicas": 3, "max_replicas": 3}
    market = new_market(rounds=3, **LATE | {"replication": three})
    workers = [market.worker() for _ in range(9)]
    market.gather()
    task = market.tasks()[-1]
    late = [worker for worker in workers if market.replica(worker).task_id == task.id]
    late[0].behaviour = lie
    market.until(lambda: len(market.rounds()) == 2, *(worker for worker in workers if worker not in late))
    market.play()
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert market.replicas(late[0])[0].state == ReplicaState.REJECTED
    assert market.replicas(late[1])[0].state == ReplicaState.PAYABLE
    assert 2 in in_merge(market, 1)
    check_books(market)


@FULL
def test_a_late_split_gets_its_further_wave_after_its_round_is_merged(new_market: NewMarket) -> None:
    more = {"name": "fixed", "replicas": 3, "max_replicas": 5}
    market = new_market(rounds=2, **LATE | {"replication": more})
    workers = [market.worker() for _ in range(9)]
    market.gather()
    task = market.tasks()[-1]
    late = [worker for worker in workers if market.replica(worker).task_id == task.id]
    for worker in late[:2]:
        worker.behaviour = NOISE
    market.until(lambda: len(market.rounds()) == 2, *(worker for worker in workers if worker not in late))
    market.play()
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert the(market, task).used
    assert the(market, task).wave == 1
    assert market.replicas(late[2])[0].state == ReplicaState.PAYABLE
    check_books(market)


def test_a_late_answer_is_not_published_before_it_is_decided(new_market: NewMarket) -> None:
    market = new_market(rounds=3, **LATE)
    _fast, slow, task = slow_one(market)
    with market.context.reading() as reader:
        told = disclosure.of_job(reader, reader.get_one(Job, market.job))
        assert not told.of(reader.get_one(Task, task.id))
        assert told.first_open == 0
    market.until(lambda: the(market, task).state in (TaskState.ACCEPTED, TaskState.FINAL), slow)
    with market.context.reading() as reader:
        assert disclosure.of_job(reader, reader.get_one(Job, market.job)).of(reader.get_one(Task, task.id))
    assert rule.may_publish_answer(TaskState.COMMITTING, False, 0, 0, False) is False


@FULL
def test_a_late_lie_that_an_audit_finds_takes_back_the_round_that_merged_it(new_market: NewMarket) -> None:
    audit = {"probability": 1.0, "on_failure": "replay"}
    market = new_market(rounds=3, audit=audit, **LATE)
    fast, slow, task = slow_one(market)
    slow.behaviour = scaled(3.0)
    market.until(lambda: the(market, task).used, *fast, slow)
    assert market.rounds()[1].state != RoundState.OPEN
    slow.behaviour = IDLE
    SimAuditor(market).play()
    market.play(*fast)
    SimAuditor(market).play()
    market.play(*fast)
    assert market.state() == JobState.FINISHED, market.why_waiting()
    (event, *_) = market.events("rewound")
    assert event["round"] == 1
    assert the(market, task).state == TaskState.REVOKED
    (again,) = [row for row in market.tasks(Task.round == 1) if row.index == task.index]
    assert again.used
    check_books(market)


@pytest.mark.parametrize("seed", leave_to_full(range(4)))
def test_at_any_pace_every_row_counts_once_and_merges_reproduce_the_bits(
    new_market: NewMarket, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker's turns come at its own pace, and the service crashes: the same rows, answers and parameters."""
    monkeypatch.setattr(snapshots, "SMALL", 0)
    random = Random(seed)
    spec = LATE | {
        "staleness": random.choice([0, 1, 2, 4]),
        "tasks_per_round": 4,
        "min_tasks": random.choice([1, 2, 3]),
    }
    market = new_market(settings={"snapshot_rounds": 100}, rounds=6, optimizer={"name": "adamw", "lr": 0.1}, **spec)
    turns = {id(market.worker()): pace for pace in (1, 1, 2, random.choice([3, 7]), random.choice([5, 9]))}
    for now in range(400):
        if market.state() != JobState.RUNNING:
            break
        for worker in market.workers:
            if now % turns[id(worker)] == 0:
                worker.turn()
        if random.random() < 0.05:
            market.crash()
        market.lapse(1.0)
    for _ in range(3):
        market.play()
    assert market.state() == JobState.FINISHED, market.why_waiting()
    _all_count_once(market, spec)
    check_books(market)


def _all_count_once(market: MarketFixture, spec: dict[str, Any]) -> None:
    used = Counter(task.index for task in market.tasks() if task.used)
    assert used == Counter(range(max(used) + 1))  # each row once, none left out
    first = {}
    for task in market.tasks():
        first[task.index] = min(task.round, first.get(task.index, task.round))
    late = max(1, spec["staleness"])
    for task in market.tasks():
        if task.used:
            assert first[task.index] <= task.merge_round <= first[task.index] + late
            assert task.round <= task.merge_round <= task.round + spec["staleness"]
    for number in range(6):
        assert spec["min_tasks"] <= len(in_merge(market, number)) <= spec["tasks_per_round"]
    answered = [task for task in market.tasks() if task.payload]
    assert sum(market.earned().values()) == len(answered) * PRICE
    if spec["staleness"]:
        assert all(task.used for task in answered)


@FULL
def test_decided_rounds_are_merged_again_to_the_same_bits(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SMALL", 0)
    market = new_market(settings={"snapshot_rounds": 100}, rounds=4, optimizer={"name": "adamw", "lr": 0.1}, **LATE)
    fast, slow, _task = slow_one(market)
    market.until(lambda: len(market.rounds()) == 4, *fast, slow)
    market.crash()
    again: list[int] = []
    merge = replay.merge_round
    monkeypatch.setattr(
        replay,
        "merge_round",
        lambda blobs, inputs, state: (again.append(inputs.number), merge(blobs, inputs, state))[1],
    )
    market.play()
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert again[:4] == [0, 1, 2, 3]  # Conflict is raised where one gives other parameters than were published


def measured(new_market: NewMarket, **changes: Any) -> tuple[MarketFixture, list[SimWorker], SimWorker]:
    """Returns a market with known times, where a silent worker holds the last task of a round."""
    market = new_market(rounds=9, deadlines={"lease_s": 200, "wave_s": 10, "upload_s": 10}, **LATE | changes)
    workers = [market.worker() for _ in range(4)]
    market.until(lambda: len(market.rounds()) == 4, *workers)
    market.until(lambda: any(task.state == TaskState.COMMITTING for task in market.tasks(Task.round == 3)), *workers)
    held = market.tasks(Task.round == 3, Task.state == TaskState.COMMITTING)[0]
    silent = next(worker for worker in workers if market.replica(worker).task_id == held.id)
    return market, [worker for worker in workers if worker is not silent], silent


def stalled(market: MarketFixture, silent: SimWorker) -> Task:
    return market.tasks(Task.id == market.replica(silent).task_id)[0]


@FULL
def test_the_last_task_of_a_round_gets_a_backup_once_it_is_late(new_market: NewMarket) -> None:
    market, others, silent = measured(new_market)
    task, replica = stalled(market, silent), market.replica(silent)
    assert replica.expected_at is not None
    assert replica.leased_at < replica.expected_at < replica.leased_at + 60 < replica.lease_until
    silent.behaviour = IDLE
    market.until(lambda: the(market, task).state in (TaskState.ACCEPTED, TaskState.FINAL), *others)
    assert market.clock() < replica.lease_until
    told = next(row for row in market.replicas(silent) if row.id == replica.id)
    assert (told.state, market.strikes(silent)) == (ReplicaState.NOT_NEEDED, 1)
    market.play(*others)
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert silent.address not in {row.worker for row in market.replicas() if row.task_id == task.id and row.root}
    check_books(market)


@FULL
def test_a_worker_that_answers_before_its_backup_is_paid_and_the_backup_owes_nothing(new_market: NewMarket) -> None:
    market, others, silent = measured(new_market)
    task, before = stalled(market, silent), market.earned().get(silent.address, 0)
    market.until(lambda: the(market, task).backups and the(market, task).state == TaskState.COMMITTING, *others)
    for worker in others:
        worker.behaviour = IDLE
    (backup,) = [row for row in market.replicas() if row.task_id == task.id and row.worker != silent.address]
    market.until(lambda: the(market, task).state in (TaskState.ACCEPTED, TaskState.FINAL), silent)
    assert market.earned()[silent.address] == before + PRICE
    (told,) = [row for row in market.replicas() if row.id == backup.id]
    assert told.state == ReplicaState.NOT_NEEDED
    assert all(market.strikes(worker) == 0 for worker in others)
    check_books(market)


@FULL
def test_where_rounds_wait_for_all_nobody_is_expected_and_nobody_backed(new_market: NewMarket) -> None:
    market = new_market(rounds=3, tasks_per_round=3, **ALONE)
    for _ in range(3):
        market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert {row.expected_at for row in market.replicas()} == {None}
    assert {row.backups for row in market.tasks()} == {0}


def test_each_commitment_of_the_newest_rounds_is_measured_once(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **LATE)
    workers = [market.worker() for _ in range(3)]
    market.play()
    with market.context.reading() as reader:
        measured = paces.of_job(reader, market.the_job().id, 1)
    committed = Counter(replica.worker for replica in market.replicas() if replica.committed_at is not None)
    assert len(committed) == 3
    assert Counter({worker.address: len(measured.of_worker(worker.address)) for worker in workers}) == committed
