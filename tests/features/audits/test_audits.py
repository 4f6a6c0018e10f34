"""Audits: a quorum of liars is found out, its gradient taken back, and the honest worker that it outvoted is paid."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.features.audits import auditing
from gradmarket.market.rules import secrets
from gradmarket.market.terms import AuditState, Digest, Hash, JobState, ReplicaState, RoundState, TaskState
from requester.features import reputation as reputations
from requester.features.audits import audit, audit_draws, audit_rows
from requester.features.audits.audit_routes import audits as audits_told
from requester.features.records.evidence_routes import evidence_of
from requester.features.records.evidence_routes import tasks as tasks_told
from requester.stages import aggregate
from requester.store.tables import Earned, Job, JobEvent, Reputation, Round, Task
from tests.kit.behaviour import NOISE, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

LIE = scaled(3.0)
ANOTHER = "00000000000000bb"
"""A job beside the market fixture's."""
NewMarket = Callable[..., MarketFixture]


def always(on_failure: str = "replay") -> dict[str, Any]:
    return {"probability": 1.0, "on_failure": on_failure}


def betrayed(market: MarketFixture) -> tuple[list[SimWorker], SimWorker]:
    """Two that lie as one, and the honest worker that they outvote."""
    return [market.worker(LIE), market.worker(LIE)], market.worker()


def clean_parameters(new_market: NewMarket, **spec: Any) -> str:
    """Returns the final parameters of one honest worker, without votes: the number of workers changes no bit."""
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1}, **spec)
    market.worker()
    market.play()
    return market.final_parameters()


def test_honest_work_passes_and_ends_with_the_same_bits(new_market: NewMarket) -> None:
    market = new_market(rounds=3, audit=always())
    workers = [market.worker() for _ in range(3)]
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=3)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED] * 3
    assert [task.state for task in market.tasks()] == [TaskState.FINAL] * 3
    assert not any(market.context.blobs.has(Digest(task.payload or "")) for task in market.tasks())
    assert market.earned() == {worker.address: 3 * PRICE for worker in workers}
    assert {row.operator: (row.passed, row.failed) for row in market.all(Reputation)} == {
        worker.address: (3, 0) for worker in workers
    }
    check_books(market)


@FULL
def test_without_an_auditor_a_job_goes_no_further_than_can_be_taken_back(new_market: NewMarket) -> None:
    market = new_market(rounds=5, audit=always())
    for _ in range(3):
        market.worker()
    market.play(passes=30)
    assert market.state() == JobState.RUNNING
    assert [row.state for row in market.rounds()] == [RoundState.CLOSED] * 2
    assert "an auditor of class cpu" in market.why_waiting()
    assert SimAuditor(market, determinism_class="another").work() == 0
    assert all(market.context.blobs.has(Digest(task.payload or "")) for task in market.tasks())
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED


@FULL
def test_a_lie_is_revoked_in_an_open_round_and_the_outvoted_worker_is_paid(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=2, audit=always())
    liars, honest = betrayed(market)
    market.until(lambda: any(task.state == TaskState.ACCEPTED for task in market.tasks()))
    assert market.replica(honest).state == ReplicaState.REJECTED
    auditor = SimAuditor(market)
    assert auditor.work() == 2
    revoked = next(task for task in market.tasks() if task.state == TaskState.REVOKED)
    (event,) = market.events("audit_failed")
    assert event["lost"] == str(2 * PRICE)
    assert set(event["workers"]) == {liar.address for liar in liars}
    assert event["vindicated"] == [honest.address]
    honest.receive_answer()
    told = next(held.told for held in honest.held.values() if held.told and held.lease.task == revoked.id)
    assert (told.state, told.price) == (ReplicaState.PAYABLE, PRICE)
    assert honest.voucher is not None
    assert honest.voucher.cumulative == PRICE
    market.worker(), market.worker()
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, tasks_per_round=2)
    check_books(market)


def test_a_worker_that_opened_another_seal_is_not_vindicated_by_the_right_root(new_market: NewMarket) -> None:
    market = new_market(audit=always())
    liars, forger = betrayed(market)
    market.gather()
    market.commit()
    market.reveal(*liars)
    forger.receive_answer()
    forger.send_poll(reveals=[forger.revelation(forger.newest(), salt=Hash(bytes(32)))])
    market.until(lambda: audits_of(market), *liars)
    SimAuditor(market).work()
    (event,) = market.events("audit_failed")
    assert event["vindicated"] == []
    assert forger.address not in market.earned()
    assert market.replicas(forger)[0].state == ReplicaState.REJECTED


def is_published(market: MarketFixture, root: str | None) -> bool:
    """Whether anybody can read the root in a task's evidence, a list of tasks or of audits."""
    with market.reading() as reader:
        told = [evidence_of(reader, task).model_dump_json() for task in market.tasks()]
    lists = (tasks_told(market.context, market.job, limit=100), audits_told(market.context, market.job, limit=100))
    return any(root in text for text in (*told, *(list_.model_dump_json() for list_ in lists)) if root)


def test_the_right_answer_is_nowhere_to_be_copied_while_its_task_is_done_again(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=2, audit=always())
    _, honest = betrayed(market)
    market.until(lambda: any(task.state == TaskState.ACCEPTED for task in market.tasks()))
    right = market.replica(honest).root
    assert not is_published(market, right)
    SimAuditor(market).work()
    assert market.events("audit_failed")
    assert not is_published(market, right)
    market.cancel()
    assert is_published(market, right)


@FULL
def test_the_right_answer_of_a_merged_round_is_not_published_before_the_redo(new_market: NewMarket) -> None:
    market = new_market(rounds=3, audit=always("replay"))
    _, honest = merged_lies(market)
    right = market.replicas(honest)[0].root
    auditor = SimAuditor(market)
    assert not is_published(market, right)
    for claimed in (auditor.claim(), auditor.claim()):
        assert claimed is not None
        assert auditor.answer(claimed)
        assert not auditor.answer(claimed, again=1)
        assert not is_published(market, right)
        market.drive()
        assert not is_published(market, right)
    assert [event["round"] for event in market.events("rewound")] == [0]


def merged_lies(market: MarketFixture) -> tuple[list[SimWorker], SimWorker]:
    """Two rounds that the liars won, merged, and no auditor yet; two more honest workers come."""
    liars, honest = betrayed(market)
    market.until(lambda: [row.state for row in market.rounds()] == [RoundState.CLOSED] * 2)
    market.worker(), market.worker()
    return liars, honest


@pytest.mark.parametrize("optimizer", leave_to_full(["adamw", "sgd"]))
def test_merged_lies_are_taken_back_and_the_rounds_done_again(new_market: NewMarket, optimizer: str) -> None:
    """So are their traces in the optimizer's state."""
    spec: dict[str, Any] = {"rounds": 3, "optimizer": {"name": optimizer, "lr": 0.125}}
    market = new_market(audit=always("replay"), **spec)
    liars, honest = merged_lies(market)
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, **spec)
    assert [(event["round"], event["again"]) for event in market.events("rewound")] == [(0, [1])]
    assert {liar.address: market.earned()[liar.address] for liar in liars} == {
        liar.address: 2 * PRICE for liar in liars
    }
    # of the second round nobody answered as the auditor did from the wrong parameters but the honest worker
    assert market.earned()[honest.address] == 5 * PRICE
    assert {row.worker for row in market.all(Earned, Earned.revoked)} == {liar.address for liar in liars}
    assert sum(row.units for row in market.all(Earned, Earned.revoked)) == 4 * PRICE
    assert all(task.state in (TaskState.FINAL, TaskState.REVOKED) for task in market.tasks())
    assert [task.round for task in market.tasks() if task.used] == [0, 1, 2]
    check_books(market)


@FULL
@pytest.mark.parametrize("final_after", leave_to_full([7, 2]))
def test_a_conviction_takes_back_lies_of_the_job_s_last_rounds(new_market: NewMarket, final_after: int) -> None:
    """The liars' first lies pass unaudited; one in the sixth round is found, with those that are not final."""
    spec: dict[str, Any] = {"rounds": 7, "optimizer": {"name": "adamw", "lr": 0.125}}
    market = new_market(audit={"probability": 1e-9, "final_after": final_after}, **spec)
    betrayed(market)
    market.until(lambda: len(market.rounds()) == 7)
    market.worker(), market.worker()
    with market.context.begin() as work:
        sixth = work.get_one(Task, market.tasks()[5].id)
        audit_draws.create_audit(work, sixth, 1.0, audit_draws.DRAWN, market.clock())
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert [event["round"] for event in market.events("rewound")] == [0 if final_after == 7 else 5]
    assert (market.final_parameters() == clean_parameters(new_market, **spec)) == (final_after == 7)
    check_books(market)


def test_a_split_has_the_answers_of_those_convicted_audited_alone(new_market: NewMarket) -> None:
    """Whoever votes against others convicts itself when it likes, and nothing wrong was accepted."""
    market = new_market(audit={"probability": 1e-9, "final_after": 7}, rounds=7)
    betrayed(market)
    market.until(lambda: len(market.rounds()) == 5)
    stranger = market.worker()
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        assert audit_rows.lock_spared_tasks(work, [stranger.address]) == []
        assert len(audit_rows.lock_spared_tasks(work, [stranger.address], job)) >= 4


@FULL
@pytest.mark.parametrize("final_after", leave_to_full([7, 2]))
def test_a_conviction_looks_for_lies_of_others_in_the_rounds_that_a_job_keeps(
    new_market: NewMarket, final_after: int
) -> None:
    """Two lied and left, and of two others a lie is found. The twin, with the fewest rounds, audits theirs alone."""
    spec: dict[str, Any] = {"rounds": 7, "optimizer": {"name": "adamw", "lr": 0.125}}
    market = new_market(audit={"probability": 1e-9, "final_after": final_after}, **spec)
    first, honest = betrayed(market)
    market.until(lambda: len(market.rounds()) == 5)
    for liar in first:
        liar.capacity = 0
    others = [market.worker(LIE), market.worker(LIE)]
    market.until(lambda: len(market.rounds()) == 7, *others, honest)
    market.worker(), market.worker()
    with market.context.begin() as work:
        sixth = work.get_one(Task, market.tasks()[5].id)
        audit_draws.create_audit(work, sixth, 1.0, audit_draws.DRAWN, market.clock())
    SimAuditor(market).play()
    barred = {row.operator for row in market.all(Reputation, Reputation.failed > 0)}
    assert barred == {liar.address for liar in (*others, *(first if final_after == 7 else ()))}
    assert (market.final_parameters() == clean_parameters(new_market, **spec)) == (final_after == 7)
    check_books(market)


@FULL
def test_a_job_may_go_on_with_what_was_merged(new_market: NewMarket) -> None:
    market = new_market(rounds=3, audit=always("go_on"))
    liars, honest = merged_lies(market)
    spoiled = market.final_parameters()
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.events("rewound") == []
    assert market.rounds()[1].updated == spoiled
    assert market.earned()[liars[0].address] == 2 * PRICE
    assert market.earned()[honest.address] == 3 * PRICE
    check_books(market)


@FULL
def test_a_job_may_pause_on_a_failed_audit_until_its_requester_resumes(new_market: NewMarket) -> None:
    market = new_market(rounds=3, audit=always("pause"))
    merged_lies(market)
    auditor = SimAuditor(market)
    auditor.work()
    assert market.state() == JobState.PAUSED
    assert "an audit found a wrong gradient in round" in market.the_job().reason
    market.resume()
    auditor.play()
    assert market.state() == JobState.FINISHED
    check_books(market)


def test_a_job_does_not_pause_for_a_gradient_that_was_never_merged(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=2, audit=always("pause"))
    betrayed(market)
    market.until(lambda: any(task.state == TaskState.ACCEPTED for task in market.tasks()))
    SimAuditor(market).work()
    assert market.events("audit_failed")
    assert market.state() == JobState.RUNNING
    assert market.events("task_reissued")


@FULL
def test_an_audit_waits_for_a_merge_under_way_though_its_job_is_paused(new_market: NewMarket) -> None:
    """A revoked payload is deleted, and the merge reads it."""
    market = new_market(audit=always())
    market.stages = tuple(stage for stage in market.stages if stage is not aggregate)
    betrayed(market)
    market.until(lambda: audits_of(market))
    with market.context.begin() as work:
        work.session.execute(update(Round).values(state=RoundState.MERGING))
        work.session.execute(update(Job).values(state=JobState.PAUSED))
    auditor = SimAuditor(market)
    claimed = auditor.claim()
    assert claimed is not None
    assert auditor.answer(claimed)
    assert not auditor.answer(claimed, again=1)
    assert audit.run(market.context, claimed.task) is not None
    assert market.task().state == TaskState.ACCEPTED
    market.cancel()
    assert market.task().state == TaskState.REVOKED


@FULL
def test_workers_that_committed_after_a_lie_are_judged_and_paid_before_the_rewind(new_market: NewMarket) -> None:
    market = new_market(rounds=4, audit=always())
    betrayed(market)
    market.until(lambda: len(market.rounds()) == 2)
    market.worker(), market.worker()
    market.gather()
    market.commit()
    committed = [replica for replica in market.replicas() if replica.state == ReplicaState.COMMITTED]
    assert committed
    SimAuditor(market).work()
    assert market.events("audit_failed")
    SimAuditor(market).play()
    states = {replica.id: replica.state for replica in market.replicas()}
    assert {states[replica.id] for replica in committed} <= {ReplicaState.PAYABLE, ReplicaState.REJECTED}
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=4)
    check_books(market)


def test_a_worker_that_failed_an_audit_and_its_operator_get_no_more_work(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=2, audit=always())
    liars, _ = betrayed(market)
    market.until(lambda: any(task.state == TaskState.ACCEPTED for task in market.tasks()))
    SimAuditor(market).work()
    sibling = market.worker(payout=liars[0].address, consent=1)
    sibling.send_poll()
    assert "an audit of its work, or of its operator's work, failed" in sibling.waiting
    market.worker(), market.worker()
    before = len(market.replicas(liars[0]))
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.replicas(sibling) == []
    assert len(market.replicas(liars[0])) == before
    for row in market.all(Reputation, Reputation.failed > 0):
        assert (row.evidence, row.operator in {liar.address for liar in liars}) == (0.0, True)


@FULL
def test_one_failed_audit_has_all_audited_that_its_operators_were_paid_for(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=16, audit={"probability": 0.5})
    betrayed(market)
    for worker in market.workers:
        worker.capacity = 16
    market.until(lambda: sum(task.state == TaskState.ACCEPTED for task in market.tasks()) >= 15)
    accepted = [task for task in market.tasks() if task.state == TaskState.ACCEPTED]
    drawn = audits_of(market)
    assert 0 < len(drawn) < len(accepted)
    SimAuditor(market).work()
    assert {audit.task_id for audit in audits_of(market)} >= {task.id for task in accepted}
    assert {audit.rate for audit in audits_of(market)} == {0.5, 1.0}
    assert all(task.state == TaskState.REVOKED for task in market.tasks() if task.id in {a.id for a in accepted})


@FULL
def test_a_barred_worker_s_answer_in_flight_is_audited_once_accepted(new_market: NewMarket) -> None:
    market = new_market(rounds=1, audit={"probability": 1e-9})
    (liar, _), _ = betrayed(market)
    market.gather()
    with market.context.begin() as work:
        reputations.record_failed_audit(work, [liar.address], CLASS, market.clock())
    market.play()
    (found,) = audits_of(market)
    assert (found.reason, found.rate) == (audit_draws.REOPENED, 1.0)
    SimAuditor(market).work()
    assert market.tasks()[0].state == TaskState.REVOKED


@FULL
def test_a_failed_audit_leaves_jobs_alone_that_asked_for_none(new_market: NewMarket) -> None:
    """Nobody would ever run an audit there, and the job would wait for it for good."""
    market = new_market(audit=always())
    betrayed(market)
    market.also(ANOTHER, 8, tasks_per_round=2)
    market.until(lambda: [t.job_id for t in market.tasks(Task.state == TaskState.ACCEPTED)].count(ANOTHER) == 1)
    market.until(lambda: audits_of(market))
    SimAuditor(market).work()
    assert {audit.job_id for audit in audits_of(market)} == {market.job}


@FULL
def test_a_failed_audit_reopens_what_its_operators_did_in_other_audited_jobs(new_market: NewMarket) -> None:
    market = new_market(audit=always())
    betrayed(market)
    market.also(ANOTHER, 8, tasks_per_round=2, audit={"probability": 1e-9})
    market.until(lambda: [t.job_id for t in market.tasks(Task.state == TaskState.ACCEPTED)].count(ANOTHER) == 1)
    market.until(lambda: audits_of(market))
    SimAuditor(market).work()
    assert {(audit.job_id, audit.rate) for audit in audits_of(market)} == {(market.job, 1.0), (ANOTHER, 1.0)}
    assert {audit.state for audit in audits_of(market)} == {AuditState.FAILED}


def list_event_kinds(market: MarketFixture) -> str:
    return " ".join(event.kind for event in market.all(JobEvent))


def with_audit_due(new_market: NewMarket) -> MarketFixture:
    """Three honest workers' task is accepted, and its audit is due."""
    market = new_market(audit=always())
    for _ in range(3):
        market.worker()
    market.until(lambda: audits_of(market))
    return market


def test_an_auditor_that_errs_once_convicts_nobody(new_market: NewMarket) -> None:
    market = with_audit_due(new_market)
    wrong, right = SimAuditor(market, NOISE), SimAuditor(market)
    claimed = wrong.claim()
    assert claimed is not None
    assert right.claim() is None
    assert wrong.answer(claimed)
    assert "audit" not in list_event_kinds(market), "nobody hears of an audit that is not over"
    assert not right.answer(claimed, again=1)
    market.drive()
    (audit,) = audits_of(market)
    assert (audit.state, audit.runs) == (AuditState.PASSED, 2)
    assert [event["runs"] for event in market.events("audit_passed")] == [2]
    assert not right.answer(claimed, again=1)
    with pytest.raises(Conflict):
        wrong.answer(claimed)
    with pytest.raises(NotFound):
        wrong.answer(replace(claimed, task="no such task"))
    check_books(market)


@FULL
def test_an_answer_that_is_sent_again_is_one_run(new_market: NewMarket) -> None:
    """Else a machine that erred once, on a network that lost an answer, would convict by itself."""
    market = with_audit_due(new_market)
    wrong = SimAuditor(market, NOISE)
    claimed = wrong.claim()
    assert claimed is not None
    assert wrong.answer(claimed)
    assert wrong.answer(claimed)
    assert [audit.runs for audit in audits_of(market)] == [1]
    with pytest.raises(Conflict):
        SimAuditor(market).answer(claimed)
    assert [audit.runs for audit in audits_of(market)] == [1]
    assert not wrong.answer(claimed, again=1)
    market.drive()
    assert [audit.state for audit in audits_of(market)] == [AuditState.FAILED]


def test_only_the_last_claimant_answers_an_audit(new_market: NewMarket) -> None:
    market = with_audit_due(new_market)
    first, second = SimAuditor(market, NOISE, name="first"), SimAuditor(market, name="second")
    claimed = first.claim()
    assert claimed is not None
    for stranger in (second, SimAuditor(market, name="who claimed nothing")):
        with pytest.raises(Conflict):
            stranger.answer(claimed)
    market.lapse(21)
    taken = second.claim()
    assert taken is not None
    with pytest.raises(Conflict):
        first.answer(claimed)
    assert not second.answer(taken)
    market.drive()
    assert [(audit.state, audit.runs) for audit in audits_of(market)] == [(AuditState.PASSED, 1)]


def test_an_audit_that_its_auditor_left_is_given_to_another(new_market: NewMarket) -> None:
    market = with_audit_due(new_market)
    auditor = SimAuditor(market)
    first = auditor.claim()
    assert auditor.claim() is None
    market.lapse(21)
    assert auditor.claim() == first


@FULL
def test_the_draw_is_committed_to_in_the_offer_and_can_be_checked_by_any_worker(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=8, rounds=1, audit={"probability": 0.5})
    for _ in range(3):
        market.worker()
    SimAuditor(market).play()
    audited = {audit.task_id for audit in audits_of(market)}
    for task in market.tasks(Task.root.is_not(None)):
        link = secrets.of_task(Hash(task.secret), 5)[-1]
        assert secrets.leads_to(link, 5, Hash(task.offer.anchor))
        root = Hash(bytes.fromhex((task.root or "")[7:]))
        assert auditing.is_audit_drawn(link, Hash(task.offer_digest), root, 0.5) == (task.id in audited)


def test_one_replica_and_audits_alone_find_a_lone_liar(new_market: NewMarket) -> None:
    market = new_market(rounds=2, replication={"name": "audited", "audit": 1.0})
    liar = market.worker(LIE)
    market.until(lambda: market.earned())
    assert market.earned() == {liar.address: PRICE}
    market.workers.remove(liar)  # it holds a lease on parameters that are taken back
    honest = market.worker()
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.earned()[honest.address] >= 2 * PRICE
    assert {row.worker for row in market.all(Earned, Earned.revoked)} == {liar.address}
    clean = new_market(rounds=2, replication={"name": "audited", "audit": 1.0})
    clean.worker()
    SimAuditor(clean).play()
    assert market.final_parameters() == clean.final_parameters()
    check_books(market)


def test_an_ended_job_is_still_audited_and_takes_nothing_back(new_market: NewMarket) -> None:
    market = new_market(rounds=3, audit=always())
    liars, honest = betrayed(market)
    market.until(lambda: market.earned())
    market.cancel()
    SimAuditor(market).work()
    assert market.state() == JobState.CANCELLED
    assert market.earned()[honest.address] == PRICE
    assert market.events("rewound") == []
    assert {row.operator for row in market.all(Reputation, Reputation.failed > 0)} == {liar.address for liar in liars}
    check_books(market)
