"""`proven`, the default, where no auditor of the workers' class is there: a plain majority decides, and says so."""

from collections.abc import Callable

from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.rules import classes
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from requester.store import progress
from requester.store.tables import Job
from tests.kit.behaviour import NOISE, filled, scaled
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.test_audits import clean_parameters
from tests.requester.test_proven import prove
from tests.requester.test_verdicts_replayed import found, shown

NewFloor = Callable[..., MarketFixture]
PROVEN = {"replication": {"name": "proven"}}
LIE = scaled(3.0)


def described(market: MarketFixture) -> str:
    with market.reading() as reader:
        return progress.describe_checks(reader, reader.get_one(Job, market.job), market.clock())


def wait_for_an_auditor(market: MarketFixture) -> None:
    """As long as the first task waits for a worker of a class with an auditor; those that are there go on asking."""
    for _ in range(20):
        market.gather()
        market.lapse(classes.UNAUDITED_S / 15)


def test_a_plain_majority_decides_and_is_proven_by_its_evidence(new_floor: NewFloor) -> None:
    market = new_floor(rounds=2, audited_classes=(), **PROVEN)
    liar, honest = market.worker(LIE), [market.worker() for _ in range(2)]
    market.gather()
    assert market.replicas() == []
    assert "gradmarket auditor run" in market.why_waiting()
    assert "a plain majority of 3 decides" in market.why_waiting()
    wait_for_an_auditor(market)
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_floor, rounds=2)
    assert market.earned() == {worker.address: 2 * PRICE for worker in honest}
    assert {row.state for row in market.replicas(liar)} == {ReplicaState.REJECTED}
    assert audits_of(market) == []
    for task in market.tasks():
        assert found(market, shown(market, task)) == set()
    check_books(market)


def test_it_says_who_decides_and_an_auditor_that_comes_takes_over(new_floor: NewFloor) -> None:
    market = new_floor(rounds=6, audited_classes=(), **PROVEN)
    workers = [market.worker() for _ in range(3)]
    assert described(market) == "No auditor is there yet."
    wait_for_an_auditor(market)
    market.until(lambda: market.rounds()[-1].number == 1)
    assert "a plain majority of 3 decides until one is" in described(market)
    auditor = SimAuditor(market)
    auditor.claim()
    auditor.play()
    assert market.state() == JobState.FINISHED
    plans = [task.plan.first_wave for task in market.tasks() if task.used]
    assert plans[0] == 3
    assert plans[-1] == 1
    assert sum(market.earned().values()) == PRICE * sum(plans)
    assert workers
    check_books(market)


def test_it_says_that_an_auditor_is_there(new_floor: NewFloor) -> None:
    market = new_floor(**PROVEN)
    assert described(market) == "An auditor of class cpu is there."
    market.worker()
    market.gather()
    assert described(market).startswith("An auditor of its class, cpu, is there")


def test_a_class_with_an_auditor_takes_the_job_back(new_floor: NewFloor) -> None:
    """Three wallets of a made-up class are alone with the job, until a worker of the auditor's class comes."""
    market = new_floor(rounds=4, **PROVEN)
    auditor = SimAuditor(market)
    auditor.claim()
    ring = [market.worker(determinism_class="made up") for _ in range(3)]
    wait_for_an_auditor(market)
    market.until(lambda: len(market.rounds()) == 2)
    honest = market.worker()
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert {task.determinism_class for task in market.tasks() if task.round > 2} == {"cpu"}
    assert market.earned()[honest.address] > 0
    assert ring


def test_an_infinite_answer_of_a_plain_vote_is_asked_of_others_and_waits_for_no_audit(new_floor: NewFloor) -> None:
    market = new_floor(audited_classes=(), **PROVEN)
    ring = [market.worker(filled("w", float("inf"))) for _ in range(3)]
    wait_for_an_auditor(market)
    market.until(lambda: market.tasks()[0].state == TaskState.DIVERGED, *ring)
    assert audits_of(market) == []


def test_a_newcomers_answer_that_nobody_audits_is_voted_again(new_floor: NewFloor) -> None:
    market = new_floor(**PROVEN)
    SimAuditor(market).claim()
    worker = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    market.lapse(classes.UNHEARD_S - 60.0)
    assert market.task().state == TaskState.REFERRED
    market.lapse(120.0)
    assert [audit.state for audit in audits_of(market)] == [AuditState.LAPSED]
    assert market.tasks()[0].state == TaskState.FAILED
    assert market.replicas(worker)[0].state == ReplicaState.INCONCLUSIVE
    assert market.strikes(worker) == 0
    for _ in range(2):
        market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.tasks()[-1].plan.first_wave == 3
    assert len(market.earned()) == 3
    check_books(market)


def test_a_split_that_nobody_audits_is_voted_again_and_an_auditor_at_work_is_waited_for(new_floor: NewFloor) -> None:
    market = new_floor(rounds=4, **PROVEN)
    auditor = SimAuditor(market)
    auditor.claim()
    liar, honest = market.worker(LIE), [market.worker() for _ in range(2)]
    prove(market, liar, *honest)
    market.until(lambda: market.tasks()[0].state == TaskState.REFERRED)
    market.lapse(classes.UNHEARD_S - 60.0)
    claimed = auditor.claim()
    assert claimed is not None
    market.lapse(10.0)
    assert market.tasks()[0].state == TaskState.REFERRED
    market.lapse(2 * classes.UNHEARD_S)
    assert market.tasks()[0].state == TaskState.FAILED
    assert market.state() == JobState.RUNNING
    assert market.earned() == {}
    check_books(market)


def test_an_auditor_that_agrees_with_nobody_is_told_in_words(new_floor: NewFloor) -> None:
    market = new_floor(tasks_per_round=3, **PROVEN)
    auditor = SimAuditor(market, NOISE)
    for _ in range(3):
        market.worker()
    auditor.play(passes=4)
    told = market.why_waiting()
    assert "found none of the" in told
    assert "gradmarket worker check" in told
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert "found none" not in market.why_waiting()


def test_a_job_stored_by_an_older_release_keeps_the_vote_that_it_promised(new_floor: NewFloor) -> None:
    """Its row and its publication name the policy and all its settings."""
    market = new_floor()
    with market.reading() as reader:
        stored = reader.get_one(Job, market.job)
        spec, publication = stored.spec, stored.publication
        digest = stored.spec_digest
    assert spec["replication"] == {"name": "fixed", "replicas": 3, "max_replicas": 5}
    assert JobSpec.model_validate(spec).model_dump(mode="json") == spec
    assert Publication.model_validate(publication).digest == digest
