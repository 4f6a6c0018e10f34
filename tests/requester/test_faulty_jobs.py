"""A failure that separate workers share pauses the job and strikes nobody; a lone claim strikes whoever makes it."""

from books import check_books
from market_floor import PRICE, Floor
from market_workers import HONEST, IDLE, SimWorker

from gradmarket.market.rules.faults import Fault, FaultKind
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester.api.views.jobs import job_view
from gradmarket.requester.store import jobs
from gradmarket.requester.store.tables import Job

BAD_LABEL = Fault(
    kind=FaultKind.STEP_FAILED,
    node="node 3 (cross_entropy_loss.default)",
    partition="train-0",
    input="y",
    row=17,
    message="Target 7 is out of bounds.",
)
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


def claims(worker: SimWorker, fault: Fault = BAD_LABEL) -> None:
    given = worker.give_up(worker.newest(), failed=True)
    worker.say(given_up=[given.model_copy(update={"fault": fault})])
    worker.floor.drive()


def test_a_failure_that_all_share_pauses_the_job_and_strikes_nobody(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    team = [floor.worker() for _ in range(3)]
    floor.gather()
    for worker in team:
        claims(worker)
    assert floor.state() == JobState.PAUSED
    assert [floor.strikes(worker) for worker in team] == [0, 0, 0]
    reason = floor.the_job().reason
    for part in (
        "3 separate workers",
        "cross_entropy_loss",
        "partition train-0",
        "row 17",
        "Target 7",
        "mend the data",
    ):
        assert part in reason
    (told,) = floor.events("paused")
    assert told["fault"] == BAD_LABEL.model_dump(mode="json")
    with floor.reading() as session:
        job = session.get_one(Job, floor.job)
        view = job_view(job, jobs.spec(job), None, 0, {}, job.reason)
    assert view.fault is not None
    assert (view.fault.fault, view.fault.parties) == (BAD_LABEL, 3)
    check_books(floor)


def test_the_same_workers_finish_another_job_meanwhile(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(settings={"max_strikes": 1})
    team = [floor.worker() for _ in range(3)]
    floor.gather()
    for worker in team:
        claims(worker)
    other = "00000000000000bb"
    floor.also(other, 8)
    for _ in range(20):
        for worker in team:
            worker.turn()
        floor.lapse(2.0)
    assert {job.id: job.state for job in floor.all(Job)} == {floor.job: "paused", other: "finished"}
    assert sum(floor.earned().values()) == 3 * PRICE


def test_after_a_resume_it_is_tried_anew(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    team = [floor.worker() for _ in range(3)]
    floor.gather()
    for worker in team:
        claims(worker, Fault(kind=FaultKind.LINK_FAILED, partition="train-0"))
    assert "then resume the job" in floor.the_job().reason
    floor.resume()
    assert floor.the_job().fault is None
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert [task.state for task in floor.tasks()] == [TaskState.FAILED, TaskState.FINAL]
    check_books(floor)


def test_a_lone_claim_is_a_strike_and_the_job_goes_on(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=3)
    liar, *_honest = floor.worker(IDLE), floor.worker(), floor.worker(), floor.worker()
    floor.gather()
    while len(floor.replicas(liar)) == 0:
        floor.play(passes=1)
    claims(liar)
    assert floor.strikes(liar) == 1
    assert floor.replica(liar).state == ReplicaState.ERROR
    floor.play()
    assert floor.state() == JobState.FINISHED


def test_wallets_of_one_operator_pause_nothing(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(**ALONE)
    first = floor.worker(IDLE)
    floor.gather()
    claims(first)
    for _ in range(3):
        wallet = floor.worker(IDLE, payout=first.address)
        floor.gather(wallet)
        assert floor.replicas(wallet) == [], "one party has one place of an attempt"
    assert floor.state() == JobState.RUNNING
    honest = floor.worker()
    floor.play(honest)
    assert floor.state() == JobState.FINISHED


def proven(floor: Floor, count: int) -> list[SimWorker]:
    """Workers whose work was accepted in a job before."""
    team = [floor.worker() for _ in range(count)]
    floor.play(*team)
    assert floor.state() == JobState.FINISHED
    return team


def test_newcomers_that_claim_a_failure_do_not_pause_a_job_that_the_proven_can_compute(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    honest = proven(floor, 3)
    floor.job = "00000000000000bb"
    floor.also(floor.job, 8)
    sybils = [floor.worker(IDLE) for _ in range(6)]
    for _ in range(4):
        floor.gather(*sybils)
        for sybil in sybils:
            if any(held.state == ReplicaState.LEASED for held in sybil.held.values()):
                claims(sybil)
            sybil.hear()
    assert floor.state() == JobState.RUNNING
    floor.play(*honest, passes=100)
    assert floor.state() == JobState.FINISHED
    assert all(floor.strikes(worker) == 0 for worker in honest)


def test_whose_claim_was_disproved_is_not_counted_again(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=2)
    liars = [floor.worker(IDLE) for _ in range(3)]
    floor.gather(*liars)
    for liar in liars:
        claims(liar)
    assert floor.state() == JobState.PAUSED, "nobody else was there"
    floor.resume()
    honest = [floor.worker() for _ in range(3)]
    floor.until(lambda: len(floor.rounds()) == 2, *honest)
    floor.lapse(60)
    floor.gather(*liars)
    for liar in liars:
        if any(held.state == ReplicaState.LEASED for held in liar.held.values()):
            claims(liar)
    assert floor.state() == JobState.RUNNING
    floor.play(*honest, passes=100)
    assert floor.state() == JobState.FINISHED
    assert len(floor.events("paused")) == 1


def test_a_sibling_that_commits_outweighs_every_claim(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    one, two, honest = floor.worker(IDLE), floor.worker(IDLE), floor.worker(HONEST)
    floor.gather()
    claims(one)
    claims(two)
    assert floor.state() == JobState.RUNNING, "a sibling is still at work"
    floor.commit(honest)
    assert floor.state() == JobState.RUNNING
    more = [floor.worker(), floor.worker()]
    floor.play(honest, *more, passes=100)
    assert floor.state() == JobState.FINISHED
    assert [floor.strikes(worker) for worker in (one, two)] == [1, 1]
    check_books(floor)


def test_a_sibling_that_says_nothing_ends_the_wait_with_its_lease(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor()
    one, two, silent = floor.worker(), floor.worker(), floor.worker(IDLE)
    floor.gather()
    claims(one)
    claims(two)
    assert floor.state() == JobState.RUNNING
    floor.lapse(21)
    assert floor.state() == JobState.PAUSED
    assert [floor.strikes(worker) for worker in (one, two, silent)] == [0, 0, 1]


def test_a_failed_job_of_one_replica_pauses_after_two_separate_claims(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(**ALONE)
    one, two = floor.worker(), floor.worker()
    for worker in (one, two):
        floor.gather(one, two)
        (busy,) = [each for each in (one, two) if any(h.state == ReplicaState.LEASED for h in each.held.values())]
        claims(busy)
        busy.hear()
        assert worker
    assert floor.state() == JobState.PAUSED
    assert [floor.strikes(worker) for worker in (one, two)] == [0, 0]
