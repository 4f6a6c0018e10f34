"""Silent workers: every state has an exit, a strike where an answer was owed, and no pay."""

from gradmarket.market.rules import newcomers
from gradmarket.market.terms import Hash, JobState, ReplicaState, TaskState
from requester.features.records.task_views import build_task_evidence
from requester.store.tables import Strike
from tests.kit.behaviour import COMMIT_AND_STALL, HONEST, IDLE, NOISE, WITHHOLDER, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE
from tests.requester.market_workers import SimWorker

LAST_LINK = Hash(bytes(32))
"""The link that draws audits, of an offer that was taken in vain."""


def test_a_lease_that_lapses_costs_a_strike_and_its_place_goes_to_another(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    staller, *honest = market.worker(IDLE), market.worker(), market.worker()
    market.gather()
    assert market.task().state == TaskState.COMMITTING
    market.lapse(21)
    assert market.task().state == TaskState.OPEN
    assert [market.strikes(worker) for worker in (staller, *honest)] == [1, 1, 1]
    late = [market.worker() for _ in range(3)]
    market.play(*late)
    assert market.state() == JobState.FINISHED
    assert market.replica(staller).state == ReplicaState.EXPIRED
    assert market.earned() == {worker.address: PRICE for worker in late}
    staller.turn()
    assert staller.newest().state == ReplicaState.EXPIRED
    check_books(market)


def test_a_wave_does_not_wait_for_a_staller_once_siblings_committed(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    staller, *honest = market.worker(IDLE), market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.replica(staller).state == ReplicaState.TOO_LATE
    assert market.earned() == {worker.address: PRICE for worker in honest}
    check_books(market)


def test_commit_and_stall_is_withheld_with_a_strike(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    staller, *honest = market.worker(COMMIT_AND_STALL), market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.replica(staller).state == ReplicaState.WITHHELD
    assert (market.strikes(staller), market.strikes(honest[0])) == (1, 0)
    (row,) = market.all(Strike, Strike.operator == staller.address)
    assert row.withheld == row.weight == 1.0
    assert market.earned() == {worker.address: PRICE for worker in honest}
    check_books(market)


def test_two_that_commit_and_stall_do_not_crown_the_third(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    cheater = market.worker(NOISE)
    market.worker(COMMIT_AND_STALL), market.worker(COMMIT_AND_STALL)
    market.until(lambda: market.events("split"))
    assert market.replica(cheater).state == ReplicaState.REVEALED
    assert market.task().state == TaskState.OPEN
    assert market.earned() == {}
    assert market.events("split")[0]["more"] == 2


def test_two_lapsed_leases_do_not_make_the_third_answer_right(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    cheater = market.worker(NOISE)
    market.worker(IDLE), market.worker(IDLE)
    market.until(lambda: market.events("split"))
    honest = [market.worker() for _ in range(3)]
    market.play(cheater, *honest)
    assert market.state() == JobState.FINISHED
    assert market.replica(cheater).state == ReplicaState.REJECTED
    assert cheater.address not in market.earned()
    check_books(market)


def uploader(market) -> SimWorker:  # type: ignore[no-untyped-def]
    address = next(replica.worker for replica in market.replicas() if replica.id == market.task().uploader)
    return next(worker for worker in market.workers if worker.address == address)


def test_a_withholder_gets_a_strike_and_the_next_agreeing_worker_is_asked(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    workers = [market.worker(WITHHOLDER) for _ in range(3)]
    market.until(lambda: market.task().state == TaskState.UPLOADING)
    first = uploader(market)
    for worker in set(workers) - {first}:
        worker.behaviour = HONEST
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.replica(first).state == ReplicaState.WITHHELD
    assert market.strikes(first) == 1
    told = first.newest().told
    assert told is not None
    assert told.state == ReplicaState.WITHHELD
    assert market.earned() == {worker.address: PRICE for worker in workers if worker is not first}
    check_books(market)


def test_when_all_withhold_the_task_is_offered_anew(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    workers = [market.worker(WITHHOLDER) for _ in range(3)]
    market.until(lambda: market.tasks()[0].state == TaskState.FAILED)
    assert market.earned() == {}
    assert [market.strikes(worker) for worker in workers] == [1, 1, 1]
    replicas = [replica for replica in market.replicas() if replica.root]
    told = build_task_evidence(market.tasks()[0], [], replicas, False, LAST_LINK, (None, False), {})
    assert told.root is None, "a lazy worker would commit to it in the next attempt, whose seed is the same"
    assert {replica.root for replica in told.replicas} == {None}
    for worker in workers:
        worker.behaviour = HONEST
    market.play()
    assert [market.strikes(worker) for worker in workers] == [0, 0, 0], "an accepted gradient makes up for a strike"
    first, second = market.tasks()
    assert {
        replica.root
        for replica in build_task_evidence(first, [], replicas, True, LAST_LINK, (None, False), {}).replicas
    } == {replicas[0].root}
    assert "withheld" in first.reason
    assert second.attempt == 1
    assert first.offer.anchor != second.offer.anchor
    assert first.offer.seed == second.offer.seed
    assert market.earned() == {worker.address: PRICE for worker in workers}
    check_books(market)


def test_a_decliner_gets_a_strike_and_no_second_try_at_the_attempt(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    decliner, *_ = market.worker(), market.worker(), market.worker()
    market.gather()
    decliner.send_poll(given_up=[decliner.give_up(decliner.newest())])
    market.drive()
    decliner.receive_answer()
    assert market.replica(decliner).state == ReplicaState.ABANDONED
    assert market.strikes(decliner) == 1
    assert market.task().state == TaskState.OPEN
    decliner.request_work()
    assert len(decliner.held) == 1
    assert "it had a replica of this attempt" in decliner.waiting
    decliner.send_poll(given_up=[decliner.give_up(decliner.newest())])
    assert market.strikes(decliner) == 1


def test_a_failed_runner_is_an_error_and_no_refusal(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    failing, *_ = market.worker(), market.worker(), market.worker()
    market.gather()
    failing.send_poll(given_up=[failing.give_up(failing.newest(), failed=True)])
    assert market.replica(failing).state == ReplicaState.ERROR


def test_after_too_many_strikes_a_worker_is_drawn_no_more(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3, settings={"max_strikes": 2})
    staller, *_ = market.worker(COMMIT_AND_STALL), market.worker(), market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.strikes(staller) <= 2
    assert len(market.replicas(staller)) <= 2


def test_a_suspended_worker_gets_the_reason_of_its_wait(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1})
    decliner, *others = market.worker(), market.worker(), market.worker()
    market.gather()
    decliner.send_poll(given_up=[decliner.give_up(decliner.newest())])
    market.drive()
    decliner.request_work()
    assert "unanswered" in decliner.waiting
    assert [market.strikes(worker) for worker in others] == [0, 0]


@FULL
def test_a_task_is_offered_anew_once_every_lease_has_lapsed(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    workers = [market.worker(IDLE) for _ in range(3)]
    market.gather()
    market.lapse(21)
    assert [replica.state for replica in market.replicas()] == [ReplicaState.EXPIRED] * 3
    for worker in workers:
        worker.behaviour = HONEST
    market.play(passes=100)
    assert market.state() == JobState.FINISHED
    assert [task.state for task in market.tasks()] == [TaskState.FAILED, TaskState.FINAL]
    check_books(market)


@FULL
def test_a_split_that_nobody_is_left_to_decide_is_offered_anew(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    workers = [market.worker(scaled(float(factor))) for factor in (2, 3, 4)]
    market.until(lambda: market.events("split"))
    for worker in workers:
        worker.behaviour = HONEST
    market.play(passes=100)
    assert market.state() == JobState.FINISHED
    first, second = market.tasks()
    assert (first.state, second.state) == (TaskState.FAILED, TaskState.FINAL)
    assert market.earned() == {worker.address: PRICE for worker in workers}
    check_books(market)


ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}


@FULL
def test_withholders_of_a_one_replica_job_wait_longer_each_time_and_cannot_pause_it(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=2, replication=ALONE, settings={"max_attempts": 2, "max_strikes": 10**6})
    withholders = [market.worker(WITHHOLDER) for _ in range(4)]
    market.until(lambda: len(market.tasks()) > 6, *withholders, seconds=2.0)
    assert market.state() == JobState.RUNNING, "nobody answered: the task is not to blame"
    rows = [market.account(worker) for worker in withholders]
    rests = [row.rests_until - (row.stalled_at or 0) for row in rows]
    assert rests == [newcomers.rest_s(row.stalls, known=False) for row in rows]
    assert max(rests) >= 60.0
    honest = market.worker()
    market.play(*withholders, honest, passes=200)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {honest.address: 2 * PRICE}
    check_books(market)


def test_a_worker_too_late_for_one_job_s_deadlines_rests_in_that_job_alone(new_market) -> None:  # type: ignore[no-untyped-def]
    """No worker can meet these: it is the submitter's doing, and costs no place in the jobs of others."""
    market = new_market(deadlines={"lease_s": 1, "wave_s": 1, "upload_s": 1})
    late = [market.worker() for _ in range(3)]
    market.gather()
    market.lapse(2)
    assert [replica.state for replica in market.replicas()] == [ReplicaState.EXPIRED] * 3
    assert [market.account(worker).rests_until - market.clock() for worker in late] == [newcomers.FIRST_REST_S] * 3
    another = "00000000000000bb"
    market.also(another, 8)
    market.gather()
    assert [replica.job_id for replica in market.replicas() if replica.state == ReplicaState.LEASED] == [another] * 3


@FULL
def test_where_others_delivered_before_newcomers_that_stall_get_hardly_a_place(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=12, settings={"max_strikes": 10**6})
    known = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) > 2)
    stallers = [market.worker(IDLE) for _ in range(6)]
    market.play(passes=100)
    assert market.state() == JobState.FINISHED
    tried = [replica for staller in stallers for replica in market.replicas(staller)]
    assert 1 <= len(tried) <= 3
    assert {worker.address for worker in known} == {*market.earned()}


@FULL
def test_an_honest_newcomer_is_admitted_beside_proven_workers(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=12)
    for _ in range(3):
        market.worker()
    market.until(lambda: len(market.rounds()) > 2)
    newcomer = market.worker()
    market.play(passes=100)
    assert market.state() == JobState.FINISHED
    assert market.earned()[newcomer.address] >= PRICE


@FULL
def test_attempts_that_all_answered_in_vain_count_anew_after_a_resume(new_market) -> None:  # type: ignore[no-untyped-def]
    deadlines = {"lease_s": 8, "wave_s": 5, "upload_s": 5}
    market = new_market(settings={"max_attempts": 2, "max_strikes": 10**6}, deadlines=deadlines)
    workers = [market.worker(scaled(float(factor))) for factor in (2, 3, 4)]
    market.until(lambda: market.state() == JobState.PAUSED)
    failed = len(market.tasks())
    market.resume()
    market.until(lambda: len(market.tasks()) > failed)
    assert market.state() == JobState.RUNNING, "one more attempt is not one too many"
    for worker in workers:
        worker.behaviour = HONEST
    market.play(passes=200)
    assert market.state() == JobState.FINISHED
