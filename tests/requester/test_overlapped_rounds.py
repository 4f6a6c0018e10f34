"""A job with an overlap: its rounds' tasks start from the parameters before the last merge, whatever happens when."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from gradmarket.market.admissible import move_of
from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.gradient.round_update import ModelState, build_model_state
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import overlap, secrets
from gradmarket.market.terms import Digest, JobState, ReplicaState, RoundState, TaskState
from gradmarket.market.wire.poll import OfferFields
from graphdoc import tensors
from requester.moves import replay, snapshots
from requester.stages import aggregate
from requester.store import jobs
from requester.store.disclosure import of_job
from requester.store.tables import Task
from tests.kit.behaviour import scaled
from tests.kit.whole_merge import apply_merged_answer, merge_answers
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import COUNTER, LAYOUT, PRICE, MarketFixture, first_parameters
from tests.requester.market_workers import SimWorker, honest_answer

NewMarket = Callable[..., MarketFixture]
ADAMW = {"name": "adamw", "lr": 0.1, "weight_decay": 0.1, "clip": 1.0}
SPEC: dict[str, Any] = {"overlap": 1, "rounds": 5, "tasks_per_round": 2, "optimizer": ADAMW}
ALONE: dict[str, Any] = SPEC | {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
LIE = scaled(3.0)
NEVER_SMALL = {"snapshot_rounds": 3, "snapshot_s": 1e9}


def by_the_formula(market: MarketFixture, worker: SimWorker) -> list[dict[str, np.ndarray]]:
    """The parameters before each round and after the last, computed round by round on one machine."""
    job = market.the_job()
    spec, move = jobs.load_spec(job), move_of(jobs.load_spec(job))
    states: list[ModelState] = [build_model_state(LAYOUT, first_parameters(), move)]
    for number in range(spec.rounds):
        start = states[max(0, number - spec.overlap)].tensors
        seeds = [secrets.task_seed(spec.seed, number, index) for index in spec.tasks_of(number)]
        answers = [MergedAnswer(worker.encode(honest_answer(start, seed), seed), seed) for seed in seeds]
        merged = merge_answers(replay.build_recipe(spec, job), answers)
        lr = compute_learning_rate("constant", spec.optimizer.lr, number, spec.rounds, spec.optimizer.schedule.warmup)
        states.append(apply_merged_answer(LAYOUT, states[-1], merged, move, lr, (COUNTER,)))
    return [state.tensors for state in states]


def final_bytes(market: MarketFixture, worker: SimWorker) -> bytes:
    return tensors.pack_tensors(by_the_formula(market, worker)[-1])


def staffed(new_market: NewMarket, workers: int = 3, capacity: int = 2, **spec: Any) -> MarketFixture:
    market = new_market(**SPEC | spec)
    for _ in range(workers):
        market.worker().capacity = capacity
    return market


def check_formula_end(market: MarketFixture) -> None:
    assert market.state() == JobState.FINISHED, market.why_waiting()
    assert all(row.state == RoundState.CLOSED for row in market.rounds())
    stored = market.context.blobs.read(Digest(market.final_parameters()))
    assert stored == final_bytes(market, market.workers[-1])
    check_books(market)


def closed(market: MarketFixture) -> int:
    return sum(row.state == RoundState.CLOSED for row in market.rounds())


@pytest.mark.parametrize("sampling", leave_to_full(["rounds", "epochs"]))
def test_a_job_of_overlapped_rounds_ends_with_the_formula_s_bits(new_market: NewMarket, sampling: str) -> None:
    market = staffed(new_market, sampling=sampling)
    market.play()
    check_formula_end(market)
    starts = [row.parameters for row in market.rounds()]
    assert starts[0] == starts[1]
    assert starts[2:] == [row.updated for row in market.rounds()][:3]
    assert len(market.tasks()) == SPEC["rounds"] * SPEC["tasks_per_round"]


@FULL
def test_without_an_overlap_it_ends_elsewhere(new_market: NewMarket) -> None:
    ends = []
    for delay in (0, 1):
        market = staffed(new_market, overlap=delay)
        market.play()
        check_formula_end(market)
        ends.append(market.final_parameters())
    assert ends[0] != ends[1]


def test_two_rounds_are_under_way_and_never_three(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    assert [row.number for row in market.rounds()] == [0, 1]
    worker = market.worker()
    worker.capacity = 4
    market.gather()
    assert [held.lease.offer.round for held in worker.held.values()] == [0, 0, 1, 1]
    while market.state() == JobState.RUNNING:
        under_way = [row.number for row in market.rounds() if row.state != RoundState.CLOSED]
        assert len(under_way) <= 2
        market.play(passes=1)
    check_formula_end(market)


@FULL
def test_a_round_that_is_done_first_waits_for_the_one_before_it(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    slow, fast = market.worker(), market.worker()
    slow.capacity, fast.capacity = 2, 2
    slow.request_work()
    assert {held.lease.offer.round for held in slow.held.values()} == {0}
    market.until(lambda: [t.state for t in market.tasks() if t.round == 1] == [TaskState.ACCEPTED] * 2, fast)
    assert [row.state for row in market.rounds()] == [RoundState.OPEN] * 2
    market.play()
    check_formula_end(market)


@FULL
@pytest.mark.parametrize("crashes", [[1], [2, 3], [1, 2, 3, 4]])
def test_after_a_crash_it_is_replayed_to_the_same_bits(
    new_market: NewMarket, crashes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SMALL", 0)
    market = new_market(settings=NEVER_SMALL, **ALONE)
    market.worker()
    for number in crashes:
        market.until(lambda number=number: closed(market) >= number)  # type: ignore[misc]
        market.crash()
    market.play(passes=100)
    check_formula_end(market)


@FULL
def test_a_crash_during_the_merge_of_a_round_changes_nothing(new_market: NewMarket) -> None:
    market = staffed(new_market, overlap=1)
    stages = market.stages
    market.stages = tuple(stage for stage in stages if stage is not aggregate)
    market.play(passes=20)
    assert [row.number for row in market.rounds()] == [0, 1]
    assert {task.state for task in market.tasks()} == {TaskState.ACCEPTED}
    assert aggregate._close_for_merging(market.context, market.job) is not None
    assert [row.state for row in market.rounds()] == [RoundState.MERGING, RoundState.OPEN]
    market.crash()
    market.stages = stages
    market.play()
    check_formula_end(market)


# effects of a wrong answer


class Stale(SimWorker):
    """Computes from other parameters than its offers name: those of the newest merge, or the first ones."""

    def compute(self, offer: OfferFields) -> bytes:
        rows = self.market.rounds()
        newest = next((row.updated for row in reversed(rows) if row.updated), None)
        blob = self.market.context.blobs.read(Digest(newest or rows[0].parameters))
        return self.encode(honest_answer(tensors.unpack_tensors(blob), offer.seed), offer.seed)


def stale(market: MarketFixture) -> SimWorker:
    worker = market.worker()
    worker.__class__ = Stale
    return worker


@FULL
def test_a_worker_that_computes_from_other_parameters_is_outvoted(new_market: NewMarket) -> None:
    market = staffed(new_market, workers=3)
    cheat = stale(market)
    market.play()
    check_formula_end(market)
    answered = {replica.task_id: replica.state for replica in market.replicas(cheat)}
    late = {task.id for task in market.tasks() if task.round > overlap.last_unharmed(0, 1)}
    assert late & answered.keys()
    assert {answered[task] for task in late & answered.keys()} <= {ReplicaState.REJECTED, ReplicaState.NOT_NEEDED}


@FULL
def test_gradients_from_other_parameters_are_found_by_an_audit_and_taken_back(new_market: NewMarket) -> None:
    market = new_market(**ALONE | {"audit": {"probability": 1.0}})
    cheat = stale(market)
    market.until(lambda: closed(market) >= 3)
    market.worker().capacity = 2
    SimAuditor(market).play()
    check_formula_end(market)
    assert market.events("audit_failed")
    assert [event["round"] for event in market.events("rewound")] == [1]  # round 0 starts from its own parameters
    assert cheat.address in {worker for event in market.events("audit_failed") for worker in event["workers"]}


@FULL
def test_a_lie_found_late_takes_back_what_was_computed_from_it_and_no_more(new_market: NewMarket) -> None:
    """Round 1 starts from the first parameters: its tasks stand though round 0 is merged anew."""
    market = new_market(**SPEC | {"audit": {"probability": 1.0}})
    market.worker(LIE).capacity, market.worker(LIE).capacity, market.worker().capacity = 2, 2, 2
    market.until(lambda: closed(market) >= 1)
    for liar in market.workers[:2]:
        liar.behaviour = replace(liar.behaviour, spoil=market.workers[2].behaviour.spoil)
    market.until(lambda: closed(market) == 3)
    before = {task.id: task.state for task in market.tasks() if task.round == 1}
    assert set(before.values()) == {TaskState.ACCEPTED}
    market.worker().capacity, market.worker().capacity = 2, 2
    auditor = SimAuditor(market)
    auditor.work()
    assert [(event["round"], event["again"]) for event in market.events("rewound")] == [(0, [2])]
    auditor.play()
    check_formula_end(market)
    assert {task.round for task in market.tasks() if task.attempt > 0} == {0, 2}
    assert {task.id for task in market.tasks() if task.round == 1} == set(before)


@FULL
def test_work_on_an_unharmed_round_is_not_cancelled(new_market: NewMarket) -> None:
    market = new_market(**SPEC | {"tasks_per_round": 1, "audit": {"probability": 1.0}})
    market.worker(LIE), market.worker(LIE)
    honest = market.worker()
    for worker in market.workers:
        worker.capacity = 1
    market.until(lambda: closed(market) == 1)
    others = [market.worker(), market.worker(), market.worker()]
    market.gather(honest, *others)
    held = [replica for replica in market.replicas() if replica.state == ReplicaState.LEASED]
    rounds = {task.id: task.round for task in market.tasks()}
    assert {rounds[replica.task_id] for replica in held} <= {1, 2}
    SimAuditor(market).work()
    assert market.events("audit_failed")
    states = {replica.id: replica.state for replica in market.replicas()}
    assert all(states[one.id] != ReplicaState.NOT_NEEDED for one in held if rounds[one.task_id] == 1)
    SimAuditor(market).play()
    check_formula_end(market)


@FULL
def test_the_rounds_that_audits_may_take_back_keep_what_they_start_from(new_market: NewMarket) -> None:
    market = staffed(new_market, rounds=8, audit={"probability": 1.0})
    market.play(passes=40)
    assert closed(market) == 3
    assert "an auditor of class cpu" in market.why_waiting()
    for row in market.rounds():
        assert market.context.blobs.has(Digest(row.parameters))
    SimAuditor(market).play()
    check_formula_end(market)
    assert [one.state for one in audits_of(market)] == ["passed"] * 16


# publishing, paying and stopping


@FULL
def test_a_first_round_s_answer_is_unpublished_while_the_second_has_its_parameters(
    new_market: NewMarket,
) -> None:
    market = new_market(**ALONE)
    market.worker()

    def list_published_rounds() -> set[int]:
        with market.reading() as reader:
            found = of_job(reader, market.the_job())
            rows = reader.session.query(Task).where(Task.job_id == market.job).all()
            by_rule = {task.id for task in rows if found.of(task)}
            query = reader.session.query(Task).where(Task.job_id == market.job, found.tasks)
            done = (TaskState.ACCEPTED, TaskState.FINAL)
            assert {task.id for task in query if task.state in done} == {
                task.id for task in rows if task.id in by_rule and task.state in done
            }
            return {task.round for task in rows if task.id in by_rule}

    market.until(lambda: closed(market) == 1)
    assert list_published_rounds() == set()
    market.until(lambda: closed(market) == 2)
    assert {0, 1} <= list_published_rounds()
    market.play()
    assert list_published_rounds() == set(range(SPEC["rounds"]))


@FULL
def test_a_spent_sum_ends_the_job_and_committed_workers_are_paid(new_market: NewMarket) -> None:
    market = staffed(new_market, rounds=9, stop=[{"spent": str(12 * PRICE)}])
    market.play()
    assert market.state() == JobState.FINISHED
    assert "spent" in market.the_job().reason
    assert market.rounds()[-1].state == RoundState.OPEN
    for _ in range(6):
        market.lapse(10)
        market.take_turns()
    assert sum(market.earned().values()) >= 12 * PRICE
    assert not [one for one in market.replicas() if one.state in (ReplicaState.COMMITTED, ReplicaState.REVEALED)]
    check_books(market)


@FULL
def test_a_deposit_that_covers_the_rounds_under_way_alone_pauses_it_after_them(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    market.worker()
    with market.context.begin() as work:
        job = work.get_one(type(market.the_job()), market.job)
        job.budget = job.deposited = 7 * PRICE
    market.play()
    assert market.state() == JobState.PAUSED
    assert "does not cover" in market.the_job().reason
    assert [row.state for row in market.rounds()] == [RoundState.CLOSED] * 3
    check_books(market)


def test_a_job_whose_rounds_leave_tasks_has_no_overlap() -> None:
    fields = {"name": "x", "model": {"architecture": "mlp"}, "data": {"ready": "digits"}, "step": {"rows": 1}}
    fields |= {"optimizer": {"lr": 0.1}, "rounds": 2, "price": "1", "overlap": 1, "tasks_per_round": 2}
    assert JobSpec.model_validate(fields | {"sampling": "epochs"}).overlap == 1
    assert JobSpec.model_validate(fields | {"min_tasks": 1}).overlap == 1
    with pytest.raises(ValidationError, match="leave out min_tasks"):
        JobSpec.model_validate(fields | {"sampling": "epochs", "min_tasks": 1})
    with pytest.raises(ValidationError, match="overlap"):
        JobSpec.model_validate(fields | {"overlap": 2})
    assert "overlap" not in JobSpec.model_validate(fields | {"overlap": 0}).model_dump()
