"""Who answers nobody: every state has an exit, a strike where an answer was owed, and pay for nothing."""

from books import check_books
from databases import SQLITE
from market_floor import PRICE
from market_workers import COMMIT_AND_STALL, HONEST, IDLE, NOISE, WITHHOLDER, SimWorker, scaled

from gradmarket.market.rules import newcomers
from gradmarket.market.terms import Hash, JobState, ReplicaState, TaskState
from gradmarket.requester.api.views.tasks import evidence

LAST_LINK = Hash(bytes(32))
"""The link that draws audits, of an offer that was taken in vain."""


def test_a_lease_that_lapses_costs_a_strike_and_its_place_goes_to_another(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    staller, *honest = floor.worker(IDLE), floor.worker(), floor.worker()
    floor.gather()
    assert floor.task().state == TaskState.COMMITTING
    floor.lapse(21)
    assert floor.task().state == TaskState.OPEN
    assert [floor.strikes(worker) for worker in (staller, *honest)] == [1, 1, 1]
    late = [floor.worker() for _ in range(3)]
    floor.play(*late)
    assert floor.state() == JobState.FINISHED
    assert floor.replica(staller).state == ReplicaState.EXPIRED
    assert floor.earned() == {worker.address: PRICE for worker in late}
    staller.turn()
    assert staller.newest().state == ReplicaState.EXPIRED
    check_books(floor)


@SQLITE
def test_a_wave_does_not_wait_for_a_staller_once_siblings_committed(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    staller, *honest = floor.worker(IDLE), floor.worker(), floor.worker()
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.replica(staller).state == ReplicaState.TOO_LATE
    assert floor.earned() == {worker.address: PRICE for worker in honest}
    check_books(floor)


@SQLITE
def test_commit_and_stall_is_withheld_with_a_strike(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    staller, *honest = floor.worker(COMMIT_AND_STALL), floor.worker(), floor.worker()
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.replica(staller).state == ReplicaState.WITHHELD
    assert (floor.strikes(staller), floor.strikes(honest[0])) == (1, 0)
    assert floor.earned() == {worker.address: PRICE for worker in honest}
    check_books(floor)


@SQLITE
def test_two_that_commit_and_stall_do_not_crown_the_third(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    cheater = floor.worker(NOISE)
    floor.worker(COMMIT_AND_STALL), floor.worker(COMMIT_AND_STALL)
    floor.until(lambda: floor.events("split"))
    assert floor.replica(cheater).state == ReplicaState.REVEALED
    assert floor.task().state == TaskState.OPEN
    assert floor.earned() == {}
    assert floor.events("split")[0]["more"] == 2


@SQLITE
def test_two_that_let_their_lease_lapse_do_not_crown_the_third(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    cheater = floor.worker(NOISE)
    floor.worker(IDLE), floor.worker(IDLE)
    floor.until(lambda: floor.events("split"))
    honest = [floor.worker() for _ in range(3)]
    floor.play(cheater, *honest)
    assert floor.state() == JobState.FINISHED
    assert floor.replica(cheater).state == ReplicaState.REJECTED
    assert cheater.address not in floor.earned()
    check_books(floor)


def uploader(floor) -> SimWorker:  # type: ignore[no-untyped-def]
    address = next(replica.worker for replica in floor.replicas() if replica.id == floor.task().uploader)
    return next(worker for worker in floor.workers if worker.address == address)


@SQLITE
def test_who_withholds_is_struck_and_the_next_agreeing_worker_is_asked(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    workers = [floor.worker(WITHHOLDER) for _ in range(3)]
    floor.until(lambda: floor.task().state == TaskState.UPLOADING)
    first = uploader(floor)
    for worker in set(workers) - {first}:
        worker.behaviour = HONEST
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.replica(first).state == ReplicaState.WITHHELD
    assert floor.strikes(first) == 1
    told = first.newest().told
    assert told is not None
    assert told.state == ReplicaState.WITHHELD
    assert floor.earned() == {worker.address: PRICE for worker in workers if worker is not first}
    check_books(floor)


@SQLITE
def test_when_all_withhold_the_task_is_offered_anew(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    workers = [floor.worker(WITHHOLDER) for _ in range(3)]
    floor.until(lambda: floor.tasks()[0].state == TaskState.FAILED)
    assert floor.earned() == {}
    assert [floor.strikes(worker) for worker in workers] == [1, 1, 1]
    replicas = [replica for replica in floor.replicas() if replica.root]
    told = evidence(floor.tasks()[0], [], replicas, False, LAST_LINK, None)
    assert told.root is None, "a lazy worker would commit to it in the next attempt, whose seed is the same"
    assert {replica.root for replica in told.replicas} == {None}
    for worker in workers:
        worker.behaviour = HONEST
    floor.play()
    assert [floor.strikes(worker) for worker in workers] == [0, 0, 0], "an accepted gradient makes up for a strike"
    first, second = floor.tasks()
    assert {replica.root for replica in evidence(first, [], replicas, True, LAST_LINK, None).replicas} == {
        replicas[0].root
    }
    assert "withheld" in first.reason
    assert second.attempt == 1
    assert first.offer["anchor"] != second.offer["anchor"]
    assert first.offer["seed"] == second.offer["seed"]
    assert floor.earned() == {worker.address: PRICE for worker in workers}
    check_books(floor)


@SQLITE
def test_a_decliner_gets_a_strike_and_no_second_try_at_the_attempt(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    decliner, *_ = floor.worker(), floor.worker(), floor.worker()
    floor.gather()
    decliner.say(given_up=[decliner.give_up(decliner.newest())])
    floor.drive()
    decliner.hear()
    assert floor.replica(decliner).state == ReplicaState.ABANDONED
    assert floor.strikes(decliner) == 1
    assert floor.task().state == TaskState.OPEN
    decliner.ask()
    assert len(decliner.held) == 1
    assert "it had a replica of this attempt" in decliner.waiting
    decliner.say(given_up=[decliner.give_up(decliner.newest())])
    assert floor.strikes(decliner) == 1


@SQLITE
def test_a_failed_runner_is_told_apart_from_declining(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    failing, *_ = floor.worker(), floor.worker(), floor.worker()
    floor.gather()
    failing.say(given_up=[failing.give_up(failing.newest(), failed=True)])
    assert floor.replica(failing).state == ReplicaState.ERROR


@SQLITE
def test_after_too_many_strikes_a_worker_is_drawn_no_more(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=3, settings={"max_strikes": 2})
    staller, *_ = floor.worker(COMMIT_AND_STALL), floor.worker(), floor.worker(), floor.worker()
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.strikes(staller) <= 2
    assert len(floor.replicas(staller)) <= 2


@SQLITE
def test_a_suspended_worker_is_told_why_it_gets_nothing(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(settings={"max_strikes": 1})
    decliner, *others = floor.worker(), floor.worker(), floor.worker()
    floor.gather()
    decliner.say(given_up=[decliner.give_up(decliner.newest())])
    floor.drive()
    decliner.ask()
    assert "unanswered" in decliner.waiting
    assert [floor.strikes(worker) for worker in others] == [0, 0]


@SQLITE
def test_when_all_who_could_try_have_let_it_lapse_the_task_is_offered_anew(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    workers = [floor.worker(IDLE) for _ in range(3)]
    floor.gather()
    floor.lapse(21)
    assert [replica.state for replica in floor.replicas()] == [ReplicaState.EXPIRED] * 3
    for worker in workers:
        worker.behaviour = HONEST
    floor.play(passes=100)
    assert floor.state() == JobState.FINISHED
    assert [task.state for task in floor.tasks()] == [TaskState.FAILED, TaskState.FINAL]
    check_books(floor)


@SQLITE
def test_a_split_that_nobody_is_left_to_decide_is_offered_anew(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    workers = [floor.worker(scaled(float(factor))) for factor in (2, 3, 4)]
    floor.until(lambda: floor.events("split"))
    for worker in workers:
        worker.behaviour = HONEST
    floor.play(passes=100)
    assert floor.state() == JobState.FINISHED
    first, second = floor.tasks()
    assert (first.state, second.state) == (TaskState.FAILED, TaskState.FINAL)
    assert floor.earned() == {worker.address: PRICE for worker in workers}
    check_books(floor)


ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}


@SQLITE
def test_withholders_of_a_one_replica_job_wait_longer_each_time_and_cannot_pause_it(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=2, replication=ALONE, settings={"max_attempts": 2, "max_strikes": 10**6})
    withholders = [floor.worker(WITHHOLDER) for _ in range(4)]
    floor.until(lambda: len(floor.tasks()) > 6, *withholders, seconds=2.0)
    assert floor.state() == JobState.RUNNING, "nobody answered: the task is not to blame"
    rows = [floor.row(worker) for worker in withholders]
    rests = [row.rests_until - (row.stalled_at or 0) for row in rows]
    assert rests == [newcomers.rest_s(row.stalls, known=False) for row in rows]
    assert max(rests) >= 60.0
    honest = floor.worker()
    floor.play(*withholders, honest, passes=200)
    assert floor.state() == JobState.FINISHED
    assert floor.earned() == {honest.address: 2 * PRICE}
    check_books(floor)


@SQLITE
def test_where_others_delivered_before_newcomers_that_stall_get_hardly_a_place(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=12, settings={"max_strikes": 10**6})
    known = [floor.worker() for _ in range(3)]
    floor.until(lambda: len(floor.rounds()) > 2)
    stallers = [floor.worker(IDLE) for _ in range(6)]
    floor.play(passes=100)
    assert floor.state() == JobState.FINISHED
    tried = [replica for staller in stallers for replica in floor.replicas(staller)]
    assert 1 <= len(tried) <= 3
    assert {worker.address for worker in known} == {*floor.earned()}


@SQLITE
def test_a_newcomer_that_works_is_let_in_beside_those_who_delivered_before(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=12)
    for _ in range(3):
        floor.worker()
    floor.until(lambda: len(floor.rounds()) > 2)
    newcomer = floor.worker()
    floor.play(passes=100)
    assert floor.state() == JobState.FINISHED
    assert floor.earned()[newcomer.address] >= PRICE


@SQLITE
def test_attempts_that_all_answered_in_vain_count_anew_after_a_resume(new_floor) -> None:  # type: ignore[no-untyped-def]
    deadlines = {"lease_s": 8, "wave_s": 5, "upload_s": 5}
    floor = new_floor(settings={"max_attempts": 2, "max_strikes": 10**6}, deadlines=deadlines)
    workers = [floor.worker(scaled(float(factor))) for factor in (2, 3, 4)]
    floor.until(lambda: floor.state() == JobState.PAUSED)
    failed = len(floor.tasks())
    floor.resume()
    floor.until(lambda: len(floor.tasks()) > failed)
    assert floor.state() == JobState.RUNNING, "one more attempt is not one too many"
    for worker in workers:
        worker.behaviour = HONEST
    floor.play(passes=200)
    assert floor.state() == JobState.FINISHED
