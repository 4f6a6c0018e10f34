"""Votes by sketches: two classes whose honest answers differ in their last bits agree, and nothing else does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload import decode_tensors, encode_payload
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.proof import Fault
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from gradmarket.market.wire import SKETCH_BYTES
from gradmarket.market.wire.poll import Reveal
from requester.store.tables import Earned, Reputation
from tests.features.tolerance.market_calibrating import calibrate
from tests.kit.behaviour import NOISE, WITHHOLDER, Arrays, Behaviour, filled, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import LAYOUT, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker
from tests.requester.test_verdicts_replayed import changed, found, shown

NewMarket = Callable[..., MarketFixture]
CPU, GPU, TPU = "cpu", "gpu", "tpu"
NEARBY = scaled(1 + 2e-7)
"""An honest machine of another class: its last bits are others."""
SPEC: dict[str, Any] = {
    "verifier": {"name": "tolerance"},
    "audit": {"probability": 1e-9},
    "replication": {"replicas": 3, "max_replicas": 3},
}


def mixed(new_market: NewMarket, *classes: str, **changes: Any) -> MarketFixture:
    """A floor whose job compares sketches, calibrated for these classes: the two of most tests where none is named."""
    market = new_market(**(SPEC | changes))
    calibrate(market, *(classes or (CPU, GPU)))
    return market


def gpu(market: MarketFixture, behaviour: Behaviour = NEARBY) -> SimWorker:
    return market.worker(behaviour, determinism_class=GPU)


def paid(market: MarketFixture, *workers: SimWorker, rounds: int = 1) -> bool:
    return market.earned() == {worker.address: rounds * PRICE for worker in workers}


def states(market: MarketFixture, *workers: SimWorker) -> list[ReplicaState]:
    return [ReplicaState(market.replica(worker).state) for worker in workers]


def test_two_classes_agree_and_all_are_paid_for_one_payload(new_market: NewMarket) -> None:
    market = mixed(new_market, rounds=2)
    one, two, other = market.worker(), market.worker(), gpu(market)
    market.play()
    assert market.state() == JobState.FINISHED
    assert paid(market, one, two, other, rounds=2)
    assert one.newest().root != other.newest().root
    for worker in (one, two, other):
        told = worker.newest().told
        assert worker.refusals == []
        assert told is not None
        assert told.root == worker.newest().root
    for task in market.tasks():
        (canonical,) = [replica for replica in market.replicas() if replica.id == task.uploader]
        assert (task.root, task.determinism_class) == (canonical.root, canonical.determinism_class)
    assert sum(held.wanted for worker in market.workers for held in worker.held.values()) == 2
    check_books(market)


def one_small_tensor(answer: Arrays, _address: str) -> Arrays:
    return answer | {"m": (answer["m"] * np.float32(1.05)).astype(np.float32)}


LIES = {
    "scaled by 1 %": scaled(1.01),
    "ten thresholds": scaled(1.0001),
    "one small tensor": Behaviour(one_small_tensor),
    "noise": NOISE,
    "not a number": filled("w", np.nan),
    "infinite": filled("w", np.inf),
}


@pytest.mark.parametrize("lie", leave_to_full(LIES.values(), 2), ids=LIES)
def test_a_lie_is_outvoted_by_two_classes_and_its_evidence_proves_it(new_market: NewMarket, lie: Behaviour) -> None:
    market = mixed(new_market)
    liar, honest, other = market.worker(lie), market.worker(), gpu(market)
    market.play()
    assert market.state() == JobState.FINISHED
    assert paid(market, honest, other)
    told = liar.newest().told
    assert told is not None
    assert told.state == ReplicaState.REJECTED
    assert told.root == market.task().root
    assert "further from theirs than is allowed" in told.reason
    assert found(market, shown(market, market.task())) == set()
    check_books(market)


@FULL
def test_steps_that_are_each_allowed_are_no_quorum(new_market: NewMarket) -> None:
    """Five, each just within the threshold of the next: three of them are near one, and it takes the majority."""
    market = mixed(new_market, replication={"replicas": 5, "max_replicas": 5}, norm_bound=1e6)
    step = 1 + 0.8e-5
    chain = [market.worker(scaled(step**k), determinism_class=(CPU, GPU)[k % 2]) for k in range(5)]
    market.play(passes=6)
    agreed = {worker.address for worker in chain if market.replicas(worker)[0].state == ReplicaState.PAYABLE}
    assert len(agreed) == 3
    assert agreed in [{worker.address for worker in chain[k : k + 3]} for k in range(3)]


def test_two_answers_that_are_not_finite_agree_and_the_job_pauses(new_market: NewMarket) -> None:
    market = mixed(new_market, replication={"replicas": 2, "max_replicas": 2})
    one, other = market.worker(filled("w", np.nan)), gpu(market, filled("w", np.nan))
    market.play(passes=6)
    assert market.state() == JobState.PAUSED
    assert states(market, one, other) == [ReplicaState.DIVERGED] * 2
    assert all(worker.newest().told and worker.newest().told.root == worker.newest().root for worker in (one, other))


# reveals


def of_other_data(payload: bytes) -> bytes:
    """The bytes of an answer with other numbers."""
    answer = decode_tensors(LAYOUT, payload, load_codec("fp32"), bytes(32))
    return encode_payload(LAYOUT, answer | {"w": answer["w"] * np.float32(1 / 3)}, load_codec("fp32"), bytes(32))


HONEST_SKETCH = replace(scaled(3.0), sketches=of_other_data)
"""It commits to a lie, and its sketch is that of the honest answer, or nearly."""


def test_a_sketch_of_other_data_is_found_at_the_upload_and_the_next_is_asked(new_market: NewMarket) -> None:
    market = mixed(new_market, rounds=50, replication={"replicas": 2, "max_replicas": 2})
    forger, honest = market.worker(HONEST_SKETCH), gpu(market)
    market.until(lambda: judged(market, forger, ReplicaState.REJECTED))
    market.cancel()
    (replica,) = [each for each in market.replicas(forger) if each.state == ReplicaState.REJECTED]
    (task,) = [each for each in market.tasks() if each.id == replica.task_id]
    assert replica.reason == "its payload is not what its sketch was made of"
    assert task.root in {held.root for held in honest.held.values()}
    assert market.earned()[honest.address] == market.earned().get(forger.address, 0) + PRICE
    assert market.strikes(forger) == 1
    assert found(market, shown(market, task)) == {Fault.REJECTED_UNPROVEN}
    check_books(market)


def judged(market: MarketFixture, worker: SimWorker, state: ReplicaState) -> bool:
    """Whether a replica of the worker has come to this, and its task is accepted; whom a seed asks first is chance."""
    mine = {replica.task_id for replica in market.replicas(worker) if replica.state == state}
    return any(task.id in mine and task.payload is not None for task in market.tasks())


def test_where_nobody_brings_the_payload_of_its_ballot_the_task_is_tried_again(new_market: NewMarket) -> None:
    market = mixed(new_market, replication={"replicas": 2, "max_replicas": 2})
    one, other = market.worker(HONEST_SKETCH), gpu(market, HONEST_SKETCH)
    market.until(lambda: len(market.tasks()) > 1)
    assert market.tasks()[0].state == TaskState.FAILED
    assert market.tasks()[0].reason == "no agreeing worker brought the payload of its ballot"
    assert market.earned() == {}
    assert (market.strikes(one), market.strikes(other)) == (1, 1)


@FULL
def test_an_outvoted_worker_has_a_proof_though_the_first_asked_withholds(new_market: NewMarket) -> None:
    """Its verdict names the root of a ballot in the quorum, which is not the one that is merged."""
    market = mixed(new_market, rounds=50)
    liar, silent, honest = market.worker(scaled(2.0)), market.worker(WITHHOLDER), gpu(market)
    market.until(lambda: judged(market, silent, ReplicaState.WITHHELD), seconds=4.0)
    market.cancel()
    (lazy,) = [replica for replica in market.replicas(silent) if replica.state == ReplicaState.WITHHELD]
    (task,) = [each for each in market.tasks() if each.id == lazy.task_id]
    (rejected,) = [replica for replica in market.replicas(liar) if replica.task_id == task.id]
    assert (rejected.state, rejected.verdict_root) == (ReplicaState.REJECTED, lazy.root)
    assert task.root != lazy.root
    assert task.root in {held.root for held in honest.held.values()}
    assert found(market, shown(market, task)) == set()
    check_books(market)


def find_refusal(market: MarketFixture, worker: SimWorker, change: Callable[[Reveal], Reveal]) -> str:
    """Returns the market's refusal of another reveal than the worker's own."""
    market.gather()
    market.commit()
    worker.receive_answer()
    (refusal,) = worker.send_poll(reveals=[change(worker.revelation(worker.newest()))])
    return refusal.detail


def sketched(**changes: Any) -> Callable[[Reveal], Reveal]:
    """A copy with another sketch."""
    return lambda reveal: reveal.model_copy(
        update={"sketch": reveal.sketch.model_copy(update=changes) if reveal.sketch else None}
    )


def numbers(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, bytes(SKETCH_BYTES))


REFUSED: dict[str, tuple[Callable[[Reveal], Reveal], str]] = {
    "none": (lambda reveal: reveal.model_copy(update={"sketch": None}), "reveal one too"),
    "too few": (sketched(numbers=numbers("loss", "w")), "other tensors than an answer: m"),
    "others": (sketched(numbers=numbers("loss", "w", "b")), "other tensors than an answer: b, m"),
    "other numbers": (sketched(numbers=numbers("loss", "w", "m")), "signed by"),
    "other class": (sketched(determinism_class=GPU), "is of another"),
    "not signed": (sketched(signature=bytes(65)), "neither 27 nor 28"),
}


@pytest.mark.parametrize(("change", "why"), leave_to_full(REFUSED.values(), 2), ids=REFUSED)
def test_a_reveal_without_its_own_sketch_is_refused_and_withheld(
    new_market: NewMarket, change: Callable[[Reveal], Reveal], why: str
) -> None:
    market = mixed(new_market)
    cheater, honest, other = market.worker(), market.worker(), gpu(market)
    assert why in find_refusal(market, cheater, change)
    market.until(lambda: market.earned(), honest, other)
    assert states(market, cheater) == [ReplicaState.WITHHELD]
    assert market.strikes(cheater) == 1
    assert paid(market, honest, other)


def test_a_sketch_is_no_part_of_a_ballot_where_roots_are_compared(new_market: NewMarket) -> None:
    market, elsewhere = new_market(), mixed(new_market)
    worker, stranger = market.worker(), elsewhere.worker()
    market.worker(), market.worker(), elsewhere.worker(), gpu(elsewhere)
    elsewhere.gather()
    elsewhere.commit()
    stranger.receive_answer()
    sketch = stranger.sketch(stranger.newest())
    assert "reveal no sketch" in find_refusal(
        market, worker, lambda reveal: reveal.model_copy(update={"sketch": sketch})
    )


def test_the_same_reveal_again_changes_nothing_and_another_is_a_conflict(new_market: NewMarket) -> None:
    market = mixed(new_market)
    worker = market.worker()
    market.worker(), gpu(market)
    market.gather()
    market.commit()
    worker.receive_answer()
    reveal = worker.revelation(worker.newest())
    assert worker.send_poll(reveals=[reveal, reveal]) == ()
    other = worker.sketch(worker.newest(), numbers=numbers("loss", "w", "m"))
    (refusal,) = worker.send_poll(reveals=[reveal.model_copy(update={"sketch": other})])
    assert refusal.code == "conflict"


# classes that work together


def test_a_class_that_is_not_calibrated_is_not_mixed_in(new_market: NewMarket) -> None:
    market = new_market(**SPEC)
    one, two, other = market.worker(), market.worker(), gpu(market)
    market.play(passes=5)
    assert market.replicas() == []
    assert "needs 3 separate workers of one determinism class, or of calibrated ones, has 2" in market.why_waiting()
    calibrate(market, CPU, GPU)
    market.play()
    assert paid(market, one, two, other)


def test_every_pair_at_work_on_a_task_is_calibrated(new_market: NewMarket) -> None:
    """The middle one is beside both others, which are not beside each other."""
    market = mixed(new_market, CPU, GPU, rounds=1, tasks_per_round=3)
    calibrate(market, GPU, TPU)
    market.worker(), market.worker()
    gpu(market), market.worker(NEARBY, determinism_class=TPU), market.worker(NEARBY, determinism_class=TPU)
    market.play()
    assert market.state() == JobState.FINISHED
    for task in market.tasks():
        classes = {replica.determinism_class for replica in market.replicas() if replica.task_id == task.id}
        assert not {CPU, TPU} <= classes


def test_one_class_alone_needs_no_calibration(new_market: NewMarket) -> None:
    market = new_market(**SPEC)
    workers = [market.worker() for _ in range(3)]
    market.play()
    assert paid(market, *workers)
    assert market.task().allowed == []


def test_a_task_without_a_quorum_has_no_further_wave(new_market: NewMarket) -> None:
    """Two of three committed, and differ: a further worker would know the seed that they sketched under."""
    market = mixed(new_market)
    liar, honest, idle = market.worker(scaled(2.0)), gpu(market), market.worker(Behaviour(commits=False))
    market.gather()
    market.commit(liar, honest)
    market.lapse(11.0)
    market.reveal(liar, honest)
    first, again = market.tasks()
    assert (first.state, first.wave, again.attempt) == (TaskState.FAILED, 0, 1)
    assert market.earned() == {}
    assert idle.address not in {replica.worker for replica in market.replicas() if replica.outcome}


# audits


def caught(market: MarketFixture) -> None:
    """Runs the due audits of both classes' auditors."""
    SimAuditor(market).work()
    SimAuditor(market, NEARBY, determinism_class=GPU).work()


def until_audits(market: MarketFixture, seen: Callable[[], object]) -> None:
    """The market goes on beside its auditors until that is seen; whose payload is audited is chance."""
    for _ in range(60):
        if seen():
            return
        market.request_work()
        market.take_turns()
        market.lapse(2.0)
        caught(market)
    raise AssertionError("it was never seen")


def test_an_auditors_answer_takes_the_sketch_that_is_compared_and_no_other(new_market: NewMarket) -> None:
    market = new_market(**SPEC | {"audit": {"probability": 1.0}})
    for _ in range(3):
        market.worker()
    market.until(lambda: audits_of(market))
    auditor = SimAuditor(market)
    claimed = auditor.claim()
    assert claimed is not None
    whole = auditor.beside(claimed)
    assert whole is not None
    for other in (None, {"loss": whole["loss"]}, whole | {"b": whole["w"]}):
        auditor.beside = lambda _claimed, other=other: other  # type: ignore[method-assign,misc]
        with pytest.raises(Refused, match="no sketch of just the tensors"):
            auditor.answer(claimed)
    auditor.beside = lambda _claimed: whole  # type: ignore[method-assign]
    auditor.answer(claimed)
    assert [audit.state for audit in audits_of(market)] == [AuditState.ANSWERED]


@FULL
def test_an_audit_asks_for_the_class_of_the_payload_that_is_used(new_market: NewMarket) -> None:
    market = mixed(new_market, rounds=50, audit={"probability": 1.0})
    one, two, other = market.worker(), market.worker(), gpu(market)
    until_audits(market, lambda: len({audit.determinism_class for audit in audits_of(market)}) == 2)
    caught(market)
    assert {audit.state for audit in audits_of(market)} == {AuditState.PASSED}
    counted = {(row.operator, row.determinism_class): row.passed for row in market.all(Reputation)}
    assert set(counted) == {(one.address, CPU), (two.address, CPU), (other.address, GPU)}
    assert counted[one.address, CPU] + counted[other.address, GPU] == len(audits_of(market))


def test_colluders_of_two_classes_are_both_found_and_the_outvoted_one_is_paid(new_market: NewMarket) -> None:
    market = mixed(new_market, audit={"probability": 1.0})
    liars = [market.worker(scaled(2.0)), gpu(market, scaled(2.0 + 4e-7))]
    honest = market.worker()
    market.until(lambda: audits_of(market))
    assert liars[0].newest().root != liars[1].newest().root
    caught(market)
    (event,) = market.events("audit_failed")
    assert set(event["workers"]) == {liar.address for liar in liars}
    assert event["vindicated"] == [honest.address]
    assert {row.operator for row in market.all(Reputation, Reputation.failed > 0)} == {liar.address for liar in liars}
    assert {row.worker for row in market.all(Earned, Earned.revoked)} == {liar.address for liar in liars}
    market.cancel()
    told = shown(market, market.tasks()[0])
    assert found(market, told) == set()
    assert Fault.PAID_WITHOUT_AUDIT in found(market, changed(told, "audit", value=None))
    check_books(market)


def test_a_worker_near_a_liar_and_right_in_its_own_class_loses_nothing(new_market: NewMarket) -> None:
    """The lie is under the threshold: bits show it in its own class, and the honest ones of the other stand."""
    market = mixed(new_market, rounds=50, audit={"probability": 1.0})
    sly, honest, third = market.worker(scaled(1 + 3e-6)), gpu(market), gpu(market)
    until_audits(market, lambda: market.events("audit_failed"))
    (event,) = market.events("audit_failed")
    assert event["workers"] == [sly.address]
    assert {row.operator for row in market.all(Reputation, Reputation.failed > 0)} == {sly.address}
    assert {row.worker for row in market.all(Earned, Earned.revoked)} == {sly.address}
    assert market.earned()[honest.address] == market.earned()[third.address] > 0


# publications


def test_each_lie_in_the_evidence_of_a_vote_by_sketches_is_found(new_market: NewMarket) -> None:
    market = mixed(new_market)
    liar, honest, other = market.worker(scaled(1.01)), market.worker(), gpu(market)
    market.play()
    told = shown(market, market.task())
    assert found(market, told) == set()
    place = {each["worker"]: n for n, each in enumerate(told["replicas"])}
    theirs = told["replicas"][place[honest.address]]["sketch"]
    wide, narrow = [{"classes": [CPU, GPU], "tau": dict.fromkeys(theirs, tau)} for tau in (0.5, 1e-9)]
    lies = [
        (Fault.UNSIGNED_SKETCH, changed(told, "replicas", place[liar.address], "sketch", value=theirs)),
        (Fault.UNSIGNED_SKETCH, changed(told, "replicas", place[other.address], "determinism_class", value=TPU)),
        (Fault.NO_CALIBRATION, changed(told, "allowed", value=[wide])),
        (Fault.NO_CALIBRATION, changed(told, "allowed", value=[narrow])),
        (Fault.OTHER_TASK_ROOT, changed(told, "allowed", value=[])),
        (Fault.OTHER_TASK_ROOT, changed(told, "replicas", place[other.address], "sketch", value=None)),
    ]
    for fault, lie in lies:
        assert fault in found(market, lie), fault


def test_a_job_that_shows_no_ballots_yet_shows_no_sketch(new_market: NewMarket) -> None:
    market = mixed(new_market, rounds=2)
    market.worker(), market.worker(), gpu(market)
    market.gather()
    market.commit()
    market.reveal()
    told = shown(market, market.tasks()[0])
    assert told["allowed"] is None
    assert {replica["sketch"] for replica in told["replicas"]} == {None}
    assert {replica["determinism_class"] for replica in told["replicas"]} == {None}


BASE = {
    "name": "t",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 1},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 1,
    "price": "1",
}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"audit": None}, "takes its thresholds from audited tasks: set audit"),
        ({"replication": {"replicas": 3, "max_replicas": 5}}, "set replication.replicas and max_replicas alike"),
        ({"replication": {"replicas": 1, "max_replicas": 1}}, "to 2 or more"),
        ({"replication": {"name": "audited", "audit": 0.1}}, "to 2 or more"),
        ({"verifier": {"name": "nearly"}}, "'exact', 'loss_change' or 'tolerance'"),
        ({"verifier": {"name": "tolerance", "tau": 0.1}}, "no such field"),
    ],
)
def test_a_job_that_cannot_be_voted_on_by_sketches_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        JobSpec.model_validate(BASE | SPEC | changes)
    assert JobSpec.model_validate(BASE | SPEC).verifier.sketched
    assert not JobSpec.model_validate(BASE).verifier.sketched
