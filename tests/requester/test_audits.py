"""Audits: a quorum of liars is found out, its gradient taken back, and the honest worker that it outvoted is paid."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from books import check_books
from databases import SQLITE
from market_auditor import SimAuditor, audits_of
from market_floor import CLASS, PRICE, Floor
from market_workers import NOISE, SimWorker, scaled
from sqlalchemy import update

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.rules import auditing, secrets
from gradmarket.market.terms import AuditState, Digest, Hash, JobState, ReplicaState, RoundState, TaskState
from gradmarket.requester.api.audits import audits as audits_told
from gradmarket.requester.api.rounds import evidence_of
from gradmarket.requester.api.rounds import tasks as tasks_told
from gradmarket.requester.stages import aggregate, audit
from gradmarket.requester.store import progress, reputations
from gradmarket.requester.store.tables import Earned, Event, Job, Reputation, Round, Task

LIE = scaled(3.0)
ANOTHER = "00000000000000bb"
"""A job beside the floor's."""
NewFloor = Callable[..., Floor]


def always(on_failure: str = "replay") -> dict[str, Any]:
    return {"probability": 1.0, "on_failure": on_failure}


def betrayed(floor: Floor) -> tuple[list[SimWorker], SimWorker]:
    """Two that lie as one, and the honest worker that they outvote."""
    return [floor.worker(LIE), floor.worker(LIE)], floor.worker()


def clean_parameters(new_floor: NewFloor, **spec: Any) -> str:
    floor = new_floor(**spec)
    for _ in range(3):
        floor.worker()
    floor.play()
    return floor.final_parameters()


@SQLITE
def test_honest_work_passes_and_ends_with_the_same_bits(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=3, audit=always())
    workers = [floor.worker() for _ in range(3)]
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert floor.final_parameters() == clean_parameters(new_floor, rounds=3)
    assert [audit.state for audit in audits_of(floor)] == [AuditState.PASSED] * 3
    assert [task.state for task in floor.tasks()] == [TaskState.FINAL] * 3
    assert not any(floor.context.blobs.has(Digest(task.payload or "")) for task in floor.tasks())
    assert floor.earned() == {worker.address: 3 * PRICE for worker in workers}
    assert {row.operator: (row.passed, row.failed) for row in floor.all(Reputation)} == {
        worker.address: (3, 0) for worker in workers
    }
    check_books(floor)


@SQLITE
def test_without_an_auditor_a_job_goes_no_further_than_can_be_taken_back(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=5, audit=always())
    for _ in range(3):
        floor.worker()
    floor.play(passes=30)
    assert floor.state() == JobState.RUNNING
    assert [row.state for row in floor.rounds()] == [RoundState.CLOSED] * 2
    assert "an auditor of class cpu" in floor.why_waiting()
    assert SimAuditor(floor, determinism_class="another").work() == 0
    assert all(floor.context.blobs.has(Digest(task.payload or "")) for task in floor.tasks())
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED


@SQLITE
def test_a_lie_is_revoked_in_an_open_round_and_who_was_outvoted_is_paid(new_floor: NewFloor) -> None:
    floor = new_floor(tasks_per_round=2, audit=always())
    liars, honest = betrayed(floor)
    floor.until(lambda: any(task.state == TaskState.ACCEPTED for task in floor.tasks()))
    assert floor.replica(honest).state == ReplicaState.REJECTED
    auditor = SimAuditor(floor)
    assert auditor.work() == 2
    revoked = next(task for task in floor.tasks() if task.state == TaskState.REVOKED)
    (event,) = floor.events("audit_failed")
    assert event["lost"] == 2 * PRICE
    assert set(event["workers"]) == {liar.address for liar in liars}
    assert event["vindicated"] == [honest.address]
    honest.hear()
    told = next(held.told for held in honest.held.values() if held.told and held.lease.task == revoked.id)
    assert (told.state, told.price) == (ReplicaState.PAYABLE, PRICE)
    assert honest.voucher is not None
    assert honest.voucher.cumulative == PRICE
    floor.worker(), floor.worker()
    auditor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.final_parameters() == clean_parameters(new_floor, tasks_per_round=2)
    check_books(floor)


@SQLITE
def test_who_opened_another_seal_is_not_vindicated_by_the_right_root(new_floor: NewFloor) -> None:
    floor = new_floor(audit=always())
    liars, forger = betrayed(floor)
    floor.gather()
    floor.commit()
    floor.reveal(*liars)
    forger.hear()
    forger.say(reveals=[forger.revelation(forger.newest(), salt=Hash(bytes(32)))])
    floor.until(lambda: audits_of(floor), *liars)
    SimAuditor(floor).work()
    (event,) = floor.events("audit_failed")
    assert event["vindicated"] == []
    assert forger.address not in floor.earned()
    assert floor.replicas(forger)[0].state == ReplicaState.REJECTED


def is_told(floor: Floor, root: str | None) -> bool:
    """Whether anybody can read the root in a task's evidence, a list of tasks or of audits."""
    with floor.reading() as session:
        told = [evidence_of(session, task).model_dump_json() for task in floor.tasks()]
    lists = (tasks_told(floor.context, floor.job, limit=100), audits_told(floor.context, floor.job, limit=100))
    return any(root in text for text in (*told, *(list_.model_dump_json() for list_ in lists)) if root)


@SQLITE
def test_the_right_answer_is_nowhere_to_be_copied_while_its_task_is_done_again(new_floor: NewFloor) -> None:
    floor = new_floor(tasks_per_round=2, audit=always())
    _, honest = betrayed(floor)
    floor.until(lambda: any(task.state == TaskState.ACCEPTED for task in floor.tasks()))
    right = floor.replica(honest).root
    assert not is_told(floor, right)
    SimAuditor(floor).work()
    assert floor.events("audit_failed")
    assert not is_told(floor, right)
    floor.cancel()
    assert is_told(floor, right)


@SQLITE
def test_the_right_answer_of_a_merged_round_is_not_told_before_it_is_done_again(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=3, audit=always("replay"))
    _, honest = merged_lies(floor)
    right = floor.replicas(honest)[0].root
    auditor = SimAuditor(floor)
    assert not is_told(floor, right)
    for claimed in (auditor.claim(), auditor.claim()):
        assert claimed is not None
        assert auditor.answer(claimed)
        assert not auditor.answer(claimed, again=1)
        assert not is_told(floor, right)
        floor.drive()
        assert not is_told(floor, right)
    assert [event["round"] for event in floor.events("rewound")] == [0]


def merged_lies(floor: Floor) -> tuple[list[SimWorker], SimWorker]:
    """Two rounds that the liars won, merged, and no auditor yet; two more honest workers come."""
    liars, honest = betrayed(floor)
    floor.until(lambda: [row.state for row in floor.rounds()] == [RoundState.CLOSED] * 2)
    floor.worker(), floor.worker()
    return liars, honest


def test_merged_lies_are_taken_back_and_the_rounds_done_again(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=3, audit=always("replay"))
    liars, honest = merged_lies(floor)
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert floor.final_parameters() == clean_parameters(new_floor, rounds=3)
    assert [(event["round"], event["again"]) for event in floor.events("rewound")] == [(0, [1])]
    assert {liar.address: floor.earned()[liar.address] for liar in liars} == {liar.address: 2 * PRICE for liar in liars}
    # of the second round nobody answered as the auditor did from the wrong parameters but the honest worker
    assert floor.earned()[honest.address] == 5 * PRICE
    assert {row.worker for row in floor.all(Earned, Earned.revoked)} == {liar.address for liar in liars}
    assert sum(row.units for row in floor.all(Earned, Earned.revoked)) == 4 * PRICE
    assert all(task.state in (TaskState.FINAL, TaskState.REVOKED) for task in floor.tasks())
    assert [task.round for task in floor.tasks() if task.used] == [0, 1, 2]
    check_books(floor)


@SQLITE
def test_a_job_may_go_on_with_what_was_merged(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=3, audit=always("go_on"))
    liars, honest = merged_lies(floor)
    spoiled = floor.final_parameters()
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert floor.events("rewound") == []
    assert floor.rounds()[1].updated == spoiled
    assert floor.earned()[liars[0].address] == 2 * PRICE
    assert floor.earned()[honest.address] == 3 * PRICE
    check_books(floor)


@SQLITE
def test_a_job_may_pause_until_its_requester_says_what_to_do(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=3, audit=always("pause"))
    merged_lies(floor)
    auditor = SimAuditor(floor)
    auditor.work()
    assert floor.state() == JobState.PAUSED
    assert "an audit found a wrong gradient in round" in floor.the_job().reason
    floor.resume()
    auditor.play()
    assert floor.state() == JobState.FINISHED
    check_books(floor)


@SQLITE
def test_a_job_does_not_pause_for_a_gradient_that_was_never_merged(new_floor: NewFloor) -> None:
    floor = new_floor(tasks_per_round=2, audit=always("pause"))
    betrayed(floor)
    floor.until(lambda: any(task.state == TaskState.ACCEPTED for task in floor.tasks()))
    SimAuditor(floor).work()
    assert floor.events("audit_failed")
    assert floor.state() == JobState.RUNNING
    assert floor.events("task_reissued")


@SQLITE
def test_an_audit_waits_for_a_merge_under_way_though_its_job_is_paused(new_floor: NewFloor) -> None:
    """What is revoked is dropped, and the merge reads it."""
    floor = new_floor(audit=always())
    floor.stages = tuple(stage for stage in floor.stages if stage is not aggregate)
    betrayed(floor)
    floor.until(lambda: audits_of(floor))
    with floor.context.begin() as session:
        session.execute(update(Round).values(state=RoundState.MERGING))
        session.execute(update(Job).values(state=JobState.PAUSED))
    auditor = SimAuditor(floor)
    claimed = auditor.claim()
    assert claimed is not None
    assert auditor.answer(claimed)
    assert not auditor.answer(claimed, again=1)
    assert audit.run(floor.context, claimed.task) is not None
    assert floor.task().state == TaskState.ACCEPTED
    floor.cancel()
    assert floor.task().state == TaskState.REVOKED


@SQLITE
def test_while_a_round_is_to_be_taken_back_who_committed_later_is_judged_and_paid(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=4, audit=always())
    betrayed(floor)
    floor.until(lambda: len(floor.rounds()) == 2)
    floor.worker(), floor.worker()
    floor.gather()
    floor.commit()
    committed = [replica for replica in floor.replicas() if replica.state == ReplicaState.COMMITTED]
    assert committed
    SimAuditor(floor).work()
    assert floor.events("audit_failed")
    SimAuditor(floor).play()
    states = {replica.id: replica.state for replica in floor.replicas()}
    assert {states[replica.id] for replica in committed} <= {ReplicaState.PAYABLE, ReplicaState.REJECTED}
    assert floor.state() == JobState.FINISHED
    assert floor.final_parameters() == clean_parameters(new_floor, rounds=4)
    check_books(floor)


def why_no_lease(floor: Floor, worker: SimWorker) -> str:
    with floor.reading() as session:
        return progress.why_no_lease(session, worker.address, floor.clock())


@SQLITE
def test_who_failed_an_audit_gets_no_more_work_nor_does_its_operator(new_floor: NewFloor) -> None:
    floor = new_floor(tasks_per_round=2, audit=always())
    liars, _ = betrayed(floor)
    floor.until(lambda: any(task.state == TaskState.ACCEPTED for task in floor.tasks()))
    SimAuditor(floor).work()
    sibling = floor.worker(payout=liars[0].address, consent=1)
    assert "an audit of its work, or of its operator's work, failed" in why_no_lease(floor, sibling)
    floor.worker(), floor.worker()
    before = len(floor.replicas(liars[0]))
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert floor.replicas(sibling) == []
    assert len(floor.replicas(liars[0])) == before
    for row in floor.all(Reputation, Reputation.failed > 0):
        assert (row.evidence, row.operator in {liar.address for liar in liars}) == (0.0, True)


@SQLITE
def test_one_failed_audit_has_all_audited_that_its_operators_were_paid_for(new_floor: NewFloor) -> None:
    floor = new_floor(tasks_per_round=16, audit={"probability": 0.5})
    betrayed(floor)
    for worker in floor.workers:
        worker.capacity = 16
    floor.until(lambda: sum(task.state == TaskState.ACCEPTED for task in floor.tasks()) >= 15)
    accepted = [task for task in floor.tasks() if task.state == TaskState.ACCEPTED]
    drawn = audits_of(floor)
    assert 0 < len(drawn) < len(accepted)
    SimAuditor(floor).work()
    assert {audit.task_id for audit in audits_of(floor)} >= {task.id for task in accepted}
    assert {audit.rate for audit in audits_of(floor)} == {0.5, 1.0}
    assert all(task.state == TaskState.REVOKED for task in floor.tasks() if task.id in {a.id for a in accepted})


def test_what_was_in_flight_when_its_worker_was_barred_is_audited_when_it_is_accepted(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=1, audit={"probability": 1e-9})
    (liar, _), _ = betrayed(floor)
    floor.gather()
    with floor.context.begin() as session:
        reputations.failed(session, [liar.address], CLASS, floor.clock())
    floor.play()
    (found,) = audits_of(floor)
    assert (found.reason, found.rate) == (audit.REOPENED, 1.0)
    SimAuditor(floor).work()
    assert floor.tasks()[0].state == TaskState.REVOKED


@SQLITE
def test_a_failed_audit_leaves_jobs_alone_that_asked_for_none(new_floor: NewFloor) -> None:
    """Nobody would ever run an audit there, and the job would wait for it for good."""
    floor = new_floor(audit=always())
    betrayed(floor)
    floor.also(ANOTHER, 8, tasks_per_round=2)
    floor.until(lambda: [t.job_id for t in floor.tasks(Task.state == TaskState.ACCEPTED)].count(ANOTHER) == 1)
    floor.until(lambda: audits_of(floor))
    SimAuditor(floor).work()
    assert {audit.job_id for audit in audits_of(floor)} == {floor.job}


def test_a_failed_audit_reopens_what_its_operators_did_in_other_audited_jobs(new_floor: NewFloor) -> None:
    floor = new_floor(audit=always())
    betrayed(floor)
    floor.also(ANOTHER, 8, tasks_per_round=2, audit={"probability": 1e-9})
    floor.until(lambda: [t.job_id for t in floor.tasks(Task.state == TaskState.ACCEPTED)].count(ANOTHER) == 1)
    floor.until(lambda: audits_of(floor))
    SimAuditor(floor).work()
    assert {(audit.job_id, audit.rate) for audit in audits_of(floor)} == {(floor.job, 1.0), (ANOTHER, 1.0)}
    assert {audit.state for audit in audits_of(floor)} == {AuditState.FAILED}


def told_kinds(floor: Floor) -> str:
    return " ".join(event.kind for event in floor.all(Event))


@SQLITE
def test_an_auditor_that_errs_once_convicts_nobody(new_floor: NewFloor) -> None:
    floor = new_floor(audit=always())
    for _ in range(3):
        floor.worker()
    floor.until(lambda: audits_of(floor))
    wrong, right = SimAuditor(floor, NOISE), SimAuditor(floor)
    claimed = wrong.claim()
    assert claimed is not None
    assert right.claim() is None
    assert wrong.answer(claimed)
    assert "audit" not in told_kinds(floor), "nobody hears of an audit that is not over"
    assert not right.answer(claimed, again=1)
    floor.drive()
    (audit,) = audits_of(floor)
    assert (audit.state, audit.runs) == (AuditState.PASSED, 2)
    assert [event["runs"] for event in floor.events("audit_passed")] == [2]
    assert not right.answer(claimed, again=1)
    with pytest.raises(Conflict):
        wrong.answer(claimed)
    with pytest.raises(NotFound):
        wrong.answer(replace(claimed, task="no such task"))
    check_books(floor)


@SQLITE
def test_an_answer_that_is_sent_again_is_one_run(new_floor: NewFloor) -> None:
    """Else a machine that erred once, on a network that lost an answer, would convict by itself."""
    floor = new_floor(audit=always())
    for _ in range(3):
        floor.worker()
    floor.until(lambda: audits_of(floor))
    wrong = SimAuditor(floor, NOISE)
    claimed = wrong.claim()
    assert claimed is not None
    assert wrong.answer(claimed)
    assert wrong.answer(claimed)
    assert [audit.runs for audit in audits_of(floor)] == [1]
    with pytest.raises(Conflict):
        SimAuditor(floor).answer(claimed)
    assert [audit.runs for audit in audits_of(floor)] == [1]
    assert not wrong.answer(claimed, again=1)
    floor.drive()
    assert [audit.state for audit in audits_of(floor)] == [AuditState.FAILED]


@SQLITE
def test_only_who_claimed_an_audit_last_answers_it(new_floor: NewFloor) -> None:
    floor = new_floor(audit=always())
    for _ in range(3):
        floor.worker()
    floor.until(lambda: audits_of(floor))
    first, second = SimAuditor(floor, NOISE, name="first"), SimAuditor(floor, name="second")
    claimed = first.claim()
    assert claimed is not None
    for stranger in (second, SimAuditor(floor, name="who claimed nothing")):
        with pytest.raises(Conflict):
            stranger.answer(claimed)
    floor.lapse(21)
    taken = second.claim()
    assert taken is not None
    with pytest.raises(Conflict):
        first.answer(claimed)
    assert not second.answer(taken)
    floor.drive()
    assert [(audit.state, audit.runs) for audit in audits_of(floor)] == [(AuditState.PASSED, 1)]


@SQLITE
def test_an_audit_that_its_auditor_left_is_given_to_another(new_floor: NewFloor) -> None:
    floor = new_floor(audit=always())
    for _ in range(3):
        floor.worker()
    floor.until(lambda: audits_of(floor))
    auditor = SimAuditor(floor)
    first = auditor.claim()
    assert auditor.claim() is None
    floor.lapse(21)
    assert auditor.claim() == first


@SQLITE
def test_the_draw_is_committed_to_in_the_offer_and_can_be_checked_by_any_worker(new_floor: NewFloor) -> None:
    floor = new_floor(tasks_per_round=8, rounds=1, audit={"probability": 0.5})
    for _ in range(3):
        floor.worker()
    SimAuditor(floor).play()
    audited = {audit.task_id for audit in audits_of(floor)}
    for task in floor.tasks(Task.root.is_not(None)):
        link = secrets.of_task(Hash(task.secret), 5)[-1]
        assert secrets.leads_to(link, 5, Hash(bytes.fromhex(task.offer["anchor"][2:])))
        root = Hash(bytes.fromhex((task.root or "")[7:]))
        assert auditing.drawn(link, Hash(task.offer_digest), root, 0.5) == (task.id in audited)


@SQLITE
def test_one_replica_and_audits_alone_find_a_lone_liar(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=2, replication={"name": "audited", "audit": 1.0})
    liar = floor.worker(LIE)
    floor.until(lambda: floor.earned())
    assert floor.earned() == {liar.address: PRICE}
    floor.workers.remove(liar)  # it holds a lease on parameters that are taken back
    honest = floor.worker()
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert floor.earned()[honest.address] >= 2 * PRICE
    assert {row.worker for row in floor.all(Earned, Earned.revoked)} == {liar.address}
    clean = new_floor(rounds=2, replication={"name": "audited", "audit": 1.0})
    clean.worker()
    SimAuditor(clean).play()
    assert floor.final_parameters() == clean.final_parameters()
    check_books(floor)


@SQLITE
def test_an_ended_job_is_still_audited_and_takes_nothing_back(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=3, audit=always())
    liars, honest = betrayed(floor)
    floor.until(lambda: floor.earned())
    floor.cancel()
    SimAuditor(floor).work()
    assert floor.state() == JobState.CANCELLED
    assert floor.earned()[honest.address] == PRICE
    assert floor.events("rewound") == []
    assert {row.operator for row in floor.all(Reputation, Reputation.failed > 0)} == {liar.address for liar in liars}
    check_books(floor)
