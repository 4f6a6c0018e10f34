"""Rounds that close early, and jobs that end: what was committed in time is judged and paid, the rest is called off."""

from datetime import UTC, datetime

from books import check_books
from databases import SQLITE
from market_floor import PRICE, Floor
from market_workers import IDLE, NOISE, scaled

from gradmarket.market.model import tensors
from gradmarket.market.terms import Digest, JobState, ReplicaState, RoundState, TaskState
from gradmarket.requester.store.tables import Job, Replica, Round, Task


def committed_and_leased(floor: Floor) -> None:
    """Two tasks: the first has two commitments and one lease, the second three leases."""
    for _ in range(6):
        floor.worker(IDLE)
    floor.gather()
    by_task = {task.index: [w for w in floor.workers if floor.replica(w).task_id == task.id] for task in floor.tasks()}
    floor.first, floor.second = by_task[0], by_task[1]
    for worker in floor.first[:2]:
        worker.behaviour = scaled(1.0)
        worker.computed(worker.newest())
    floor.commit(*floor.first[:2])


def test_a_cancelled_job_judges_and_pays_what_was_committed(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=2)
    committed_and_leased(floor)
    floor.cancel()
    assert floor.state() == JobState.CANCELLED
    assert [task.state for task in floor.tasks()] == [TaskState.REVEALING, TaskState.CANCELLED]
    assert {floor.replica(worker).state for worker in (*floor.second, floor.first[2])} == {ReplicaState.NOT_NEEDED}
    assert [floor.strikes(worker) for worker in floor.workers] == [0] * 6
    for _ in range(3):
        for worker in floor.workers:
            worker.turn()
    assert floor.tasks()[0].state == TaskState.ACCEPTED
    assert floor.earned() == {worker.address: PRICE for worker in floor.first[:2]}
    assert {worker.newest().state for worker in floor.second} == {ReplicaState.NOT_NEEDED}
    assert len(floor.rounds()) == 1
    check_books(floor)


@SQLITE
def test_a_job_cancelled_in_a_split_asks_nobody_further(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    for factor in (2.0, 3.0, 4.0):
        floor.worker(scaled(factor))
    floor.gather()
    floor.commit()
    floor.cancel()
    floor.reveal()
    (task,) = floor.tasks()
    assert task.state == TaskState.FAILED
    assert {replica.state for replica in floor.replicas()} == {ReplicaState.INCONCLUSIVE}
    assert floor.earned() == {}


@SQLITE
def test_a_job_cancelled_while_a_payload_is_awaited_pays_for_it(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    workers = [floor.worker() for _ in range(3)]
    floor.gather()
    floor.commit()
    floor.reveal()
    floor.cancel()
    for worker in workers:
        worker.turn()
    assert floor.earned() == {worker.address: PRICE for worker in workers}
    assert floor.task().state == TaskState.ACCEPTED
    assert floor.rounds()[0].state == RoundState.OPEN
    check_books(floor)


@SQLITE
def test_a_job_ends_at_its_date_and_its_leases_are_not_needed(new_floor) -> None:  # type: ignore[no-untyped-def]
    date = datetime.fromtimestamp(1_800_000_015, UTC)
    floor = new_floor(stop=[{"date": date.isoformat()}])
    workers = [floor.worker(IDLE) for _ in range(3)]
    floor.gather()
    floor.lapse(16)
    assert floor.state() == JobState.FINISHED
    assert "date" in floor.the_job().reason
    assert {floor.replica(worker).state for worker in workers} == {ReplicaState.NOT_NEEDED}
    assert floor.task().state == TaskState.CANCELLED


@SQLITE
def test_a_job_ends_when_its_sum_is_spent(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=9, stop=[{"spent": str(6 * PRICE)}])
    for _ in range(3):
        floor.worker()
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert len(floor.rounds()) == 2
    assert "spent" in floor.the_job().reason


@SQLITE
def test_a_job_pauses_when_the_escrow_does_not_cover_a_round(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=9)
    with floor.context.begin() as session:
        session.get_one(Job, floor.job).deposited = 5 * PRICE - 1
    for _ in range(3):
        floor.worker()
    floor.play()
    assert floor.state() == JobState.PAUSED
    assert "fund the job" in floor.why_waiting()
    assert sum(floor.earned().values()) == 3 * PRICE


@SQLITE
def test_a_round_closes_at_its_least_tasks_and_late_ones_are_paid_but_not_used(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=2, min_tasks=1, rounds=1)
    prompt = [floor.worker() for _ in range(6)]
    floor.gather()
    first, second = floor.tasks()
    late = [worker for worker in prompt if floor.replica(worker).task_id == second.id]
    floor.commit(*late)
    floor.until(lambda: floor.state() == JobState.FINISHED, *(worker for worker in prompt if worker not in late))
    for _ in range(3):
        floor.play(*late)
    first, second = floor.tasks()
    assert (first.state, first.used) == (TaskState.FINAL, True)
    assert (second.state, second.used) == (TaskState.FINAL, False)
    assert floor.earned() == {worker.address: PRICE for worker in prompt}
    assert not any(floor.context.blobs.has(Digest(task.payload)) for task in (first, second))
    alone = new_floor(rounds=1)
    for _ in range(3):
        alone.worker()
    alone.play()
    assert floor.final_parameters() == alone.final_parameters()
    check_books(floor)


@SQLITE
def test_a_closed_round_calls_off_what_nobody_committed_to(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=2, min_tasks=1, rounds=2)
    workers = [floor.worker() for _ in range(6)]
    floor.gather()
    second = floor.tasks()[1]
    idle = [worker for worker in workers if floor.replica(worker).task_id == second.id]
    floor.until(lambda: len(floor.rounds()) == 2, *(worker for worker in workers if worker not in idle))
    assert {replica.state for replica in floor.all(Replica, Replica.task_id == second.id)} == {ReplicaState.NOT_NEEDED}
    assert [task.state for task in floor.tasks(Task.id == second.id)] == [TaskState.CANCELLED]


@SQLITE
def test_a_split_in_a_closed_round_asks_nobody_further(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(tasks_per_round=2, min_tasks=1, rounds=2)
    workers = [floor.worker() for _ in range(6)]
    floor.gather()
    second = floor.tasks()[1]
    split = [worker for worker in workers if floor.replica(worker).task_id == second.id]
    for worker in split:
        worker.behaviour = NOISE
    floor.commit(*split)
    floor.until(lambda: len(floor.rounds()) == 2, *(worker for worker in workers if worker not in split))
    floor.reveal(*split)
    floor.drive()
    assert [task.state for task in floor.tasks(Task.id == second.id)] == [TaskState.FAILED]
    assert len(floor.tasks(Task.round == 0)) == 2


@SQLITE
def test_a_paused_job_gives_no_lease_and_still_judges(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=2)
    workers = [floor.worker() for _ in range(3)]
    floor.gather()
    floor.commit()
    with floor.context.begin() as session:
        session.get_one(Job, floor.job).state = JobState.PAUSED
    for _ in range(4):
        for worker in workers:
            worker.turn()
    assert floor.task().state == TaskState.ACCEPTED
    assert floor.earned() == {worker.address: PRICE for worker in workers}
    floor.resume()
    floor.play()
    assert floor.state() == JobState.FINISHED


@SQLITE
def test_parameters_that_do_not_change_are_not_dropped_while_a_round_needs_them(new_floor) -> None:  # type: ignore[no-untyped-def]
    """Equal content is one blob: what one round no longer needs another one may."""
    floor = new_floor(rounds=6, optimizer={"name": "sgd", "lr": 1e-30})
    for _ in range(3):
        floor.worker()
    floor.play(passes=100)
    assert floor.state() == JobState.FINISHED
    assert len({row.optimizer_state for row in floor.rounds()}) == 1
    assert tensors.unpack(floor.context.blobs.read(Digest(floor.final_parameters())))["n"] == 6


@SQLITE
def test_old_parameters_are_dropped_and_checkpoints_kept(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=7, settings={"keep_parameters_every": 3})
    for _ in range(3):
        floor.worker()
    floor.play(passes=100)
    kept = [row.number for row in floor.rounds() if floor.context.blobs.has(Digest(row.updated))]
    assert kept == [2, 4, 5, 6]
    assert floor.context.blobs.has(Digest(floor.all(Round, Round.number == 0)[0].parameters))
