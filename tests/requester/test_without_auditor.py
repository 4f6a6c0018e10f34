"""`proven`, the default, without an auditor of the workers' class: a plain majority decides, and the job names it."""

from collections.abc import Callable

import pytest
from sqlalchemy import select

from gradmarket.market.features.audits import class_checks
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from requester.features import explanations
from requester.features.audits import audited_classes
from requester.features.audits.audit_tables import AuditedClass
from requester.store import workers
from requester.store.tables import Job, Task, Worker
from tests.features.audits.test_audits import clean_parameters
from tests.features.proven.test_proven import prove
from tests.kit.behaviour import NOISE, filled, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker
from tests.requester.test_verdicts_replayed import found, shown

NewMarket = Callable[..., MarketFixture]
PROVEN = {"replication": {"name": "proven"}}
LIE = scaled(3.0)


def described(market: MarketFixture) -> str:
    with market.reading() as reader:
        return explanations.describe_checks(reader, reader.get_one(Job, market.job), market.clock())


def test_a_voted_job_with_an_audit_names_the_missing_auditor(new_market: NewMarket) -> None:
    market = new_market(audited_classes=(), audit={"probability": 0.5})
    assert described(market) == (
        "No auditor is there yet: accepted tasks that the audit draws wait for one (gradmarket auditor run)."
    )
    assert described(new_market(audit={"probability": 0.5})) == ""
    assert described(new_market(audited_classes=())) == ""


def wait_for_an_auditor(market: MarketFixture) -> None:
    """As long as the first task waits for a worker of a class with an auditor; those that are there go on asking."""
    for _ in range(5):
        market.gather()
        market.lapse(class_checks.UNAUDITED_S / 4)


def test_a_plain_majority_decides_and_is_proven_by_its_evidence(new_market: NewMarket) -> None:
    market = new_market(rounds=2, audited_classes=(), **PROVEN)
    liar, honest = market.worker(LIE), [market.worker() for _ in range(2)]
    market.gather()
    assert market.replicas() == []
    assert "gradmarket auditor run" in market.why_waiting()
    assert "a plain majority of 3 decides" in market.why_waiting()
    wait_for_an_auditor(market)
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=2)
    assert market.earned() == {worker.address: 2 * PRICE for worker in honest}
    assert {row.state for row in market.replicas(liar)} == {ReplicaState.REJECTED}
    assert audits_of(market) == []
    for task in market.tasks():
        assert found(market, shown(market, task)) == set()
    check_books(market)


@FULL
def test_a_job_names_its_majority_until_an_auditor_takes_over(new_market: NewMarket) -> None:
    market = new_market(rounds=6, audited_classes=(), **PROVEN)
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


def test_a_job_names_its_auditor_s_class(new_market: NewMarket) -> None:
    market = new_market(**PROVEN)
    assert described(market) == "An auditor of class cpu is there."
    market.worker()
    market.gather()
    assert described(market).startswith("An auditor of its class, cpu, is there")


@FULL
def test_a_class_with_an_auditor_takes_the_job_back(new_market: NewMarket) -> None:
    """Three wallets of a made-up class are alone with the job, until a worker of the auditor's class comes."""
    market = new_market(rounds=4, **PROVEN)
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


def poll_for(market: MarketFixture, seconds: float, *asking: SimWorker) -> None:
    """They ask six times in so long, and at least every ten seconds."""
    end = market.clock() + seconds
    while market.clock() < end:
        market.gather(*asking)
        market.lapse(min(seconds / 6, 10.0))


def work_until_an_audit_passed(market: MarketFixture) -> SimWorker:
    """One worker of the auditor's class and the auditor, until an audit found the same; the worker goes silent then."""
    auditor, honest = SimAuditor(market), market.worker()
    while AuditState.PASSED not in {audit.state for audit in audits_of(market)}:
        honest.turn()
        market.lapse(1.0)
        auditor.work()
    return honest


@FULL
def test_a_gap_in_presence_gives_a_job_with_a_passed_audit_to_nobody(new_market: NewMarket) -> None:
    market = new_market(rounds=6, **PROVEN)
    work_until_an_audit_passed(market)
    ring = [market.worker(determinism_class="made up") for _ in range(3)]
    market.lapse(workers.LIVE_S)
    poll_for(market, 2 * class_checks.UNAUDITED_S, *ring)
    assert not any(market.replicas(one) for one in ring)
    assert market.the_job().determinism_class == "cpu"
    SimAuditor(market).claim()
    market.lapse(class_checks.UNHEARD_S - 60.0)
    SimAuditor(market).claim()
    poll_for(market, 60.0, *ring)
    assert all(market.replicas(one) for one in ring), "nobody else came"


@FULL
def test_the_wait_counts_from_the_last_answer_where_a_task_is_older(new_market: NewMarket) -> None:
    market = new_market(rounds=6, tasks_per_round=4, **PROVEN)
    honest = work_until_an_audit_passed(market)
    with market.context.begin() as work:
        for task in work.session.scalars(select(Task)):
            task.created_at -= 2 * class_checks.UNHEARD_S
    ring = [market.worker(determinism_class="made up") for _ in range(3)]
    market.lapse(workers.LIVE_S)
    poll_for(market, 60.0, *ring)
    assert not any(market.replicas(one) for one in ring)
    assert market.replicas(honest)


@FULL
@pytest.mark.parametrize("idle", [1, 3])
def test_known_workers_without_room_stop_no_job_of_another_class(new_market: NewMarket, idle: int) -> None:
    """They poll for ever: one is no reason to wait for its class, nor are three for the job to settle on it."""
    market = new_market(rounds=2, **PROVEN)
    SimAuditor(market).claim()
    squatters = [market.worker() for _ in range(idle)]
    for squatter in squatters:
        squatter.capacity = 0
    with market.context.begin() as work:
        for row in work.session.scalars(select(Worker)):
            row.accepted_at = market.clock()
    honest = [market.worker(determinism_class="gpu") for _ in range(3)]
    wait_for_an_auditor(market)
    market.play()
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {worker.address for worker in honest}
    check_books(market)


@FULL
def test_an_idle_class_gives_a_running_job_up(new_market: NewMarket) -> None:
    """Three of the class that the job settled on stay without room."""
    market = new_market(rounds=6, **PROVEN)
    honest = work_until_an_audit_passed(market)
    idle = [honest, market.worker(), market.worker()]
    for worker in idle:
        worker.capacity = 0
    with market.context.begin() as work:
        for row in work.session.scalars(select(Worker)):
            row.accepted_at = market.clock()
    others = [market.worker(determinism_class="gpu") for _ in range(3)]
    for _ in range(4):
        SimAuditor(market).claim()
        market.lapse(class_checks.UNHEARD_S / 3)
    poll_for(market, 10.0, *idle, *others)
    assert market.the_job().determinism_class == "gpu"
    assert all(market.replicas(one) for one in others)


@FULL
def test_after_an_outage_auditors_have_a_while_to_come_back(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **PROVEN)
    ring = [market.worker(LIE) for _ in range(3)]
    for one in ring:
        one.send_poll()
    market.clock.now += 20 * class_checks.UNHEARD_S
    with market.context.begin() as work:
        audited_classes.renew_classes(work, market.clock())
    poll_for(market, 2 * class_checks.UNAUDITED_S, *ring)
    assert {task.plan.first_wave for task in market.tasks() if task.determinism_class} == {1}
    assert market.earned() == {}
    market.lapse(class_checks.GRACE_S)
    market.until(lambda: market.tasks()[-1].plan.first_wave == 3)


def test_a_start_renews_no_class_whose_auditor_was_gone_before(new_market: NewMarket) -> None:
    market = new_market(**PROVEN)
    worker = market.worker()
    asked = market.all(AuditedClass)[0].asked_at
    market.clock.now += class_checks.UNHEARD_S + 1.0
    worker.send_poll()
    market.clock.now += class_checks.UNHEARD_S
    with market.context.begin() as work:
        audited_classes.renew_classes(work, market.clock())
    assert [row.asked_at for row in market.all(AuditedClass)] == [asked]


def test_an_infinite_answer_of_a_plain_vote_is_asked_of_others_and_waits_for_no_audit(new_market: NewMarket) -> None:
    market = new_market(audited_classes=(), **PROVEN)
    ring = [market.worker(filled("w", float("inf"))) for _ in range(3)]
    wait_for_an_auditor(market)
    market.until(lambda: market.tasks()[0].state == TaskState.DIVERGED, *ring)
    assert audits_of(market) == []


def test_a_newcomers_answer_that_nobody_audits_is_voted_again(new_market: NewMarket) -> None:
    market = new_market(**PROVEN)
    SimAuditor(market).claim()
    worker = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    market.lapse(class_checks.UNHEARD_S - 60.0)
    assert market.task().state == TaskState.REFERRED
    market.lapse(120.0)
    worker.request_work()
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


def test_a_split_that_nobody_audits_is_voted_again_and_an_auditor_at_work_is_waited_for(new_market: NewMarket) -> None:
    market = new_market(rounds=4, **PROVEN)
    auditor = SimAuditor(market)
    auditor.claim()
    liar, honest = market.worker(LIE), [market.worker() for _ in range(2)]
    prove(market, liar, *honest)
    market.until(lambda: market.tasks()[0].state == TaskState.REFERRED)
    market.lapse(class_checks.UNHEARD_S - 60.0)
    claimed = auditor.claim()
    assert claimed is not None
    market.lapse(10.0)
    assert market.tasks()[0].state == TaskState.REFERRED
    market.lapse(2 * class_checks.UNHEARD_S)
    honest[0].request_work()
    assert market.tasks()[0].state == TaskState.FAILED
    assert market.state() == JobState.RUNNING
    assert market.earned() == {}
    check_books(market)


@FULL
def test_an_auditor_that_agrees_with_no_worker_is_the_job_s_reason(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=3, **PROVEN)
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


def test_a_job_stored_by_an_older_release_keeps_the_vote_that_it_promised(new_market: NewMarket) -> None:
    """Its row and its publication name the policy and all its settings."""
    market = new_market()
    with market.reading() as reader:
        stored = reader.get_one(Job, market.job)
        spec, publication = stored.spec, stored.publication
        digest = stored.spec_digest
    assert spec["replication"] == {"name": "fixed", "replicas": 3, "max_replicas": 5}
    assert JobSpec.model_validate(spec).model_dump(mode="json") == spec
    assert Publication.model_validate(publication).digest == digest
