"""`proven`: a free identity gains nothing, played on the market in one thread with an auditor beside it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.features.reputation import GradientCost
from gradmarket.market.rules.proof import Fault
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from requester.features import reputation as reputations
from requester.features.audits.audit_draws import DRAWN, create_audit
from requester.features.audits.auditor_claims import Claimed
from requester.store.tables import Job, Replica, Reputation
from tests.features.audits.test_audits import clean_parameters
from tests.kit.behaviour import HONEST, NOISE, WITHHOLDER, Behaviour, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, DEADLINES, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker
from tests.requester.test_verdicts_replayed import changed, found, shown

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)


def open_job(new_market: NewMarket, proof: int = 16, **spec: Any) -> tuple[MarketFixture, SimAuditor]:
    """A job whose auditor has asked for work."""
    market = new_market(replication={"name": "proven", "proof": proof} | spec.pop("replication", {}), **spec)
    auditor = SimAuditor(market)
    assert auditor.claim() is None
    return market, auditor


def prove(market: MarketFixture, *workers: SimWorker, audits: int = 16, cost: GradientCost | None = None) -> None:
    """Records `audits` passed audits of their operators, of answers of this `cost`; of the job's where None."""
    with market.context.begin() as work:
        each = reputations.compute_cost(work.get_one(Job, market.job)) if cost is None else cost
        for _ in range(audits):
            passed = [(worker.address, CLASS, each) for worker in workers]
            reputations.record_passed_audits(work, passed, market.clock())


def evidence(market: MarketFixture, worker: SimWorker) -> float:
    return math.fsum(row.evidence for row in market.all(Reputation, Reputation.operator == worker.address))


def failed(market: MarketFixture) -> set[str]:
    return {row.operator for row in market.all(Reputation) if row.failed_at is not None}


def test_a_newcomer_works_alone_and_is_paid_once_the_auditor_found_the_same(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    worker = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    assert market.earned() == {}
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: PRICE}
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert round(evidence(market, worker)) == 1
    check_books(market)


def agree_once(market: MarketFixture, auditor: SimAuditor) -> SimWorker:
    """A first round, in which the auditor finds a newcomer right; that one is gone then."""
    honest = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    auditor.work()
    market.until(lambda: market.task().round == 1)
    market.workers.remove(honest)
    market.lapse(float(DEADLINES["lease_s"]) + 1.0)
    return honest


def test_a_newcomer_that_lies_is_not_paid_and_the_auditors_own_result_is_the_gradient(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2)
    honest, liar = agree_once(market, auditor), market.worker(LIE)
    prove(market, liar, audits=3)
    market.until(lambda: market.task().state == TaskState.REFERRED)
    auditor.work()
    assert market.replica(liar).state == ReplicaState.REJECTED
    assert evidence(market, liar) == 0.0
    assert failed(market) == set()
    assert market.earned() == {honest.address: PRICE}
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=2)
    check_books(market)


def test_an_auditor_that_found_nobody_right_brings_no_gradient(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    liar = market.worker(LIE)
    market.until(lambda: market.task().state == TaskState.REFERRED)
    auditor.work()
    assert market.replica(liar).state == ReplicaState.INCONCLUSIVE
    assert [task.state for task in market.tasks()] == [TaskState.FAILED, TaskState.OPEN]
    check_books(market)


@FULL
def test_a_split_that_no_answer_wins_is_the_auditors_and_its_lone_liars_are_not_barred(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2, replication={"audit": 1e-9})
    agree_once(market, auditor)
    liars = [market.worker(scaled(times)) for times in (3.0, 5.0, 7.0)]
    prove(market, *liars)
    market.until(lambda: market.task().state == TaskState.REFERRED)
    auditor.work()
    wrong = [row for row in market.replicas() if row.worker in {liar.address for liar in liars}]
    assert {row.state for row in wrong} == {ReplicaState.REJECTED}
    assert failed(market) == set()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=2)
    told = shown(market, market.task())
    assert found(market, told) == set()
    assert Fault.OTHER_TASK_ROOT in found(market, changed(told, "audit", "root", value="blake3:" + "7" * 64))
    check_books(market)


def owe(market: MarketFixture, auditor: SimAuditor) -> tuple[SimWorker, Claimed]:
    """A lie is found, and the auditor is to bring its payload."""
    agree_once(market, auditor)
    liar = market.worker(LIE)
    market.until(lambda: market.task().state == TaskState.REFERRED)
    claimed = auditor.claim()
    assert claimed is not None
    assert auditor.answer(claimed)
    assert not auditor.answer(claimed, 1)
    market.drive()
    assert market.task().state == TaskState.UPLOADING
    return liar, claimed


def test_a_task_whose_payload_no_auditor_brings_is_done_again_without_its_root(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2)
    liar, claimed = owe(market, auditor)
    market.lapse(2 * DEADLINES["lease_s"] + DEADLINES["upload_s"] + 1.0)
    assert [task.state for task in market.tasks()][-2:] == [TaskState.FAILED, TaskState.OPEN]
    replica = market.replica(liar)
    assert (replica.state, replica.verdict_root) == (ReplicaState.INCONCLUSIVE, None)
    with pytest.raises(NotFound):
        auditor.bring(claimed)


def test_a_cancelled_job_waits_for_no_auditors_payload(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2)
    liar, _ = owe(market, auditor)
    market.cancel()
    assert market.task().state == TaskState.FAILED
    assert market.replica(liar).state == ReplicaState.INCONCLUSIVE
    check_books(market)


def test_other_bytes_than_the_auditor_found_are_refused_and_the_right_ones_are_taken(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2)
    owe(market, auditor)
    other = SimAuditor(market, LIE)
    owed = other.claim()
    assert owed is not None
    assert owed.brings
    with pytest.raises(Conflict):
        other.bring(owed)
    assert auditor.claim() is None
    auditor.bring(owed)
    market.drive()
    assert market.state() == JobState.FINISHED
    assert sum(market.earned().values()) == PRICE


@pytest.mark.parametrize(
    "cost", [GradientCost(PRICE, 0.1), GradientCost(PRICE / 100, 1.0)], ids=["tiny tasks", "dust price"]
)
def test_a_proof_of_cheap_answers_gives_no_vote_in_a_dear_job(new_market: NewMarket, cost: GradientCost) -> None:
    market, _ = open_job(new_market)
    ring = [market.worker(LIE) for _ in range(3)]
    prove(market, *ring, cost=cost)
    market.until(lambda: market.task().state == TaskState.REFERRED)
    assert market.task().plan.first_wave == 1
    assert market.earned() == {}


@pytest.mark.parametrize(("payers", "votes"), [(["the ring"], 1), (["requester"], 3), (["one", "another"], 1)])
@pytest.mark.parametrize("own", leave_to_full([0, 3, 4]))
def test_a_proof_paid_by_other_requesters_alone_gives_no_vote(
    new_market: NewMarket, payers: Sequence[str], votes: int, own: int
) -> None:
    """An owner of requesters' tokens pays itself, however dear its own jobs are; four answers here join it."""
    market, _ = open_job(new_market, rounds=3)
    known = [market.worker() for _ in range(3)]
    for payer in payers:
        prove(market, *known, cost=GradientCost(1e24, 1e12, payer))
    prove(market, *known, audits=own)
    votes = 3 if own == 4 and len(payers) == 2 else votes
    market.until(lambda: market.task().state not in (TaskState.OPEN, TaskState.COMMITTING))
    assert market.task().plan.first_wave == votes


def test_a_right_answer_whose_payload_never_comes_is_no_evidence(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    silent = market.worker(WITHHOLDER)
    auditor.play(passes=4)
    assert [audit.state for audit in audits_of(market)][:1] == [AuditState.PASSED]
    market.until(lambda: any(row.state == ReplicaState.WITHHELD for row in market.replicas()), seconds=5.0)
    assert evidence(market, silent) == 0.0


@FULL
def test_liars_pause_no_job(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    for _ in range(6):
        market.worker(NOISE)
    auditor.play(passes=8)
    assert market.state() == JobState.RUNNING
    market.workers.clear()
    market.worker()
    auditor.play()
    assert market.state() == JobState.FINISHED
    check_books(market)


def test_proven_ones_decide_by_unanimity_without_an_audit(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=4, replication={"audit": 1e-9})
    workers = [market.worker() for _ in range(3)]
    prove(market, *workers)
    market.until(lambda: len(market.rounds()) == 3)
    assert audits_of(market) == []
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert len(audits_of(market)) == proven.LAST
    votes = {task.round: task.plan.first_wave for task in market.tasks()}
    assert votes == {0: 3, 1: 3, 2: 1, 3: 1}, "one answers alone in the last rounds"
    assert sum(market.earned().values()) == (2 * 3 + 2) * PRICE
    check_books(market)


def test_a_newcomer_without_a_seat_gets_the_newcomers_share(new_market: NewMarket) -> None:
    market, _ = open_job(new_market, tasks_per_round=8)
    proven = [market.worker() for _ in range(6)]
    prove(market, *proven)
    newcomers = [market.worker() for _ in range(2)]
    market.gather()
    waiting = [one.waiting for one in newcomers if not one.held]
    assert len(waiting) == 1
    assert "newcomers get one task in 8, in turn, until 16 answers of theirs passed an audit" in waiting[0]


@FULL
def test_proven_ones_that_are_too_few_to_vote_go_on_alone(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, proof=1, rounds=3)
    workers = [market.worker() for _ in range(2)]
    prove(market, *workers)
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert sum(market.earned().values()) == 3 * PRICE
    check_books(market)


def split(market: MarketFixture, auditor: SimAuditor, liars: Sequence[SimWorker], honest: Sequence[SimWorker]) -> None:
    prove(market, *liars, *honest)
    market.until(lambda: market.tasks()[0].state == TaskState.REFERRED)
    assert market.earned() == {}
    auditor.work()
    market.until(lambda: market.tasks()[0].state == TaskState.ACCEPTED)


def test_two_equal_liars_of_three_are_barred_and_the_honest_one_is_paid(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=4, replication={"audit": 1e-9})
    liars, honest = [market.worker(LIE), market.worker(LIE)], market.worker()
    split(market, auditor, liars, [honest])
    assert market.earned() == {honest.address: PRICE}
    assert failed(market) == {liar.address for liar in liars}
    told = [held.told for held in liars[0].held.values()]
    assert [verdict.state for verdict in told if verdict] in ([ReplicaState.REJECTED], [])
    check_books(market)


def test_a_lone_wrong_answer_costs_pay_and_standing_and_bars_nobody(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=4, replication={"audit": 1e-9})
    liar, honest = market.worker(LIE), [market.worker(), market.worker()]
    split(market, auditor, [liar], honest)
    assert market.earned() == {worker.address: PRICE for worker in honest}
    assert failed(market) == set()
    assert evidence(market, liar) == 0.0
    assert all(evidence(market, worker) > 16 for worker in honest)
    check_books(market)


def test_a_unanimous_ring_is_barred_by_an_audit_and_its_round_done_again(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=3, replication={"audit": 0.99})
    ring = [market.worker(LIE) for _ in range(3)]
    prove(market, *ring)
    market.until(lambda: any(row.state == ReplicaState.PAYABLE for row in market.replicas()))
    market.workers.clear()
    honest = market.worker()
    auditor.play()
    assert failed(market) == {liar.address for liar in ring}
    assert market.state() == JobState.FINISHED
    assert market.earned()[honest.address] >= 3 * PRICE
    assert [event["round"] for event in market.events("rewound")] == [0]
    assert market.final_parameters() == clean_parameters(new_market, rounds=3)
    check_books(market)


@FULL
def test_a_newcomer_takes_no_part_in_a_vote_and_one_task_of_eight(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=4, tasks_per_round=8, replication={"audit": 1e-9})
    proven = [market.worker() for _ in range(6)]
    prove(market, *proven)
    newcomers = [market.worker() for _ in range(4)]
    for _ in range(60):
        market.take_turns()
        market.lapse(1.0)
        auditor.work()
        if len(market.rounds()) > 1:
            break
    tasks = {task.id: task for task in market.tasks()}
    voted = {row.worker for row in market.replicas() if tasks[row.task_id].plan.first_wave > 1}
    assert voted == {worker.address for worker in proven}
    alone = [row for row in market.replicas() if tasks[row.task_id].plan.first_wave == 1]
    assert len([row for row in alone if tasks[row.task_id].round == 0]) == 1
    assert {row.worker for row in alone} <= {worker.address for worker in newcomers}


@pytest.mark.parametrize(("answer", "alone"), [(LIE, range(proven.ALERT + 1)), (HONEST, ())])
def test_after_an_accepted_lie_one_proven_worker_answers_each_task_of_some_rounds_alone(
    new_market: NewMarket, answer: Behaviour, alone: Sequence[int]
) -> None:
    """From its round on, which is replayed; also in the last two of nine."""
    market, auditor = open_job(new_market, rounds=9, replication={"audit": 0.99})
    prove(market, *(market.worker(answer) for _ in range(3)))
    market.until(lambda: any(row.state == ReplicaState.PAYABLE for row in market.replicas()))
    market.workers.clear()
    prove(market, *(market.worker() for _ in range(3)))
    auditor.play()
    assert market.state() == JobState.FINISHED
    votes = {task.round: task.plan.first_wave for task in sorted(market.tasks(), key=lambda task: task.attempt)}
    assert [number for number in sorted(votes) if votes[number] == 1] == [*alone, 7, 8]
    assert market.final_parameters() == clean_parameters(new_market, rounds=9)
    check_books(market)


@FULL
def test_where_a_lie_is_found_late_the_rounds_alone_begin_when_it_is_found(new_market: NewMarket) -> None:
    """By the lie's own round they would be over: round 7 is open, and 0 to 7 are replayed."""
    market, auditor = open_job(new_market, rounds=16, replication={"audit": 1e-9})
    prove(market, *(market.worker(LIE) for _ in range(3)))
    market.until(lambda: any(row.state == ReplicaState.PAYABLE for row in market.replicas()))
    market.workers.clear()
    prove(market, *(market.worker() for _ in range(3)))
    market.until(lambda: market.task().round == 7)
    with market.context.begin() as work:
        create_audit(work, market.tasks()[0], 1.0, DRAWN, market.clock())
    auditor.play(passes=120)
    assert market.state() == JobState.FINISHED
    votes = {task.round: task.plan.first_wave for task in sorted(market.tasks(), key=lambda task: task.attempt)}
    assert [number for number in sorted(votes) if votes[number] == 1] == [*range(7 + proven.ALERT), 14, 15]
    check_books(market)


@pytest.mark.parametrize("verifier", ["tolerance", "loss_change"])
def test_proven_replication_takes_only_the_exact_verifier(new_market: NewMarket, verifier: str) -> None:
    with pytest.raises(ValueError, match="verifier"):
        new_market(replication={"name": "proven"}, verifier={"name": verifier}, audit={"probability": 0.5})


def test_a_worker_holds_one_seat_at_any_claimed_capacity(new_market: NewMarket) -> None:
    market, _ = open_job(new_market, tasks_per_round=8)
    greedy, modest = market.worker(), market.worker()
    greedy.capacity = 20
    market.gather()
    assert [len(market.all(Replica, Replica.worker == one.address)) for one in (greedy, modest)] == [1, 1]


@pytest.mark.parametrize(
    ("proven", "newcomers", "tasks"), leave_to_full([(0, 3, 3), (6, 1, 8)]), ids=["all new", "one beside proven"]
)
def test_a_newcomers_first_pay_comes_in_its_first_round(
    new_market: NewMarket, proven: int, newcomers: int, tasks: int
) -> None:
    market, auditor = open_job(new_market, rounds=3, tasks_per_round=tasks, replication={"audit": 1e-9})
    prove(market, *(market.worker() for _ in range(proven)))
    new = [market.worker() for _ in range(newcomers)]

    def is_over() -> bool:
        auditor.work()
        return len(market.rounds()) > 1

    market.until(is_over)
    assert {market.earned().get(worker.address, 0) for worker in new} == {PRICE}


@FULL
def test_one_of_the_crew_that_asks_without_room_keeps_its_seat_from_nobody(new_market: NewMarket) -> None:
    market, _ = open_job(new_market, rounds=6, replication={"audit": 1e-9})
    proven = [market.worker() for _ in range(4)]
    prove(market, *proven)
    market.until(lambda: market.task().state == TaskState.REVEALING)
    seated = {row.worker for row in market.replicas()}
    idler = next(one for one in proven if one.address in seated)
    idler.capacity = 0
    market.until(lambda: market.task().round == 1)
    began = market.clock()
    market.until(lambda: market.task().state != TaskState.OPEN)
    assert market.clock() - began < DEADLINES["lease_s"] / 2
    assert idler.address not in {row.worker for row in market.replicas() if row.task_id == market.task().id}


@pytest.mark.parametrize(("left", "standing"), leave_to_full([(1, 16), (2, 8), (3, 4)]))
def test_a_place_left_again_costs_half_of_the_proof_and_the_first_nothing(
    new_market: NewMarket, left: int, standing: int
) -> None:
    market, _ = open_job(new_market, rounds=4)
    leaver, others = market.worker(), [market.worker() for _ in range(2)]
    prove(market, leaver, *others)
    for _ in range(left):
        market.until(lambda: leaver.address in {row.worker for row in market.replicas() if row.state == "leased"})
        market.lapse(DEADLINES["lease_s"] + 1.0)
    assert round(evidence(market, leaver)) == standing
