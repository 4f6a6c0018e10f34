"""Votes by sketches: two classes whose honest answers differ in their last bits agree, and nothing else does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from books import check_books
from databases import SQLITE
from market_auditor import SimAuditor, audits_of
from market_floor import LAYOUT, PRICE, Floor
from market_workers import NOISE, WITHHOLDER, Answer, Behaviour, SimWorker, filled, scaled
from pydantic import ValidationError
from test_verdicts_replayed import changed, found, shown

from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.payload import decode_tensors, encode
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.sketches import BYTES
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from gradmarket.market.wire import Reveal
from gradmarket.requester.store.tables import Earned, Reputation

NewFloor = Callable[..., Floor]
CPU, GPU, TPU = "cpu", "gpu", "tpu"
NEARBY = scaled(1 + 2e-7)
"""An honest machine of another class: its last bits are others."""
SPEC: dict[str, Any] = {
    "verifier": {"name": "tolerance"},
    "audit": {"probability": 1e-9},
    "replication": {"replicas": 3, "max_replicas": 3},
}


def mixed(new_floor: NewFloor, *classes: str, **changes: Any) -> Floor:
    """A floor whose job compares sketches, calibrated for these classes: the two of most tests where none is named."""
    floor = new_floor(**(SPEC | changes))
    floor.calibrate(*(classes or (CPU, GPU)))
    return floor


def gpu(floor: Floor, behaviour: Behaviour = NEARBY) -> SimWorker:
    return floor.worker(behaviour, determinism_class=GPU)


def paid(floor: Floor, *workers: SimWorker, rounds: int = 1) -> bool:
    return floor.earned() == {worker.address: rounds * PRICE for worker in workers}


def states(floor: Floor, *workers: SimWorker) -> list[ReplicaState]:
    return [ReplicaState(floor.replica(worker).state) for worker in workers]


def test_two_classes_agree_and_all_are_paid_for_one_payload(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, rounds=2)
    one, two, other = floor.worker(), floor.worker(), gpu(floor)
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert paid(floor, one, two, other, rounds=2)
    assert one.newest().root != other.newest().root
    for worker in (one, two, other):
        told = worker.newest().told
        assert worker.refusals == []
        assert told is not None
        assert told.root == worker.newest().root
    for task in floor.tasks():
        (canonical,) = [replica for replica in floor.replicas() if replica.id == task.uploader]
        assert (task.root, task.determinism_class) == (canonical.root, canonical.determinism_class)
    assert sum(held.wanted for worker in floor.workers for held in worker.held.values()) == 2
    check_books(floor)


def one_small_tensor(answer: Answer, _address: str) -> Answer:
    return answer | {"m": (answer["m"] * np.float32(1.05)).astype(np.float32)}


LIES = {
    "scaled by 1 %": scaled(1.01),
    "ten thresholds": scaled(1.0001),
    "one small tensor": Behaviour(one_small_tensor),
    "noise": NOISE,
    "not a number": filled("w", np.nan),
    "infinite": filled("w", np.inf),
}


@SQLITE
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_is_outvoted_by_two_classes_and_its_evidence_proves_it(new_floor: NewFloor, lie: Behaviour) -> None:
    floor = mixed(new_floor)
    liar, honest, other = floor.worker(lie), floor.worker(), gpu(floor)
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert paid(floor, honest, other)
    told = liar.newest().told
    assert told is not None
    assert told.state == ReplicaState.REJECTED
    assert told.root == floor.task().root
    assert "further from theirs than is allowed" in told.reason
    assert found(floor, shown(floor, floor.task())) == []
    check_books(floor)


@SQLITE
def test_steps_that_are_each_allowed_are_no_quorum(new_floor: NewFloor) -> None:
    """Five, each just within the threshold of the next: three of them are near one, and it takes the majority."""
    floor = mixed(new_floor, replication={"replicas": 5, "max_replicas": 5}, norm_bound=1e6)
    step = 1 + 0.8e-5
    chain = [floor.worker(scaled(step**k), determinism_class=(CPU, GPU)[k % 2]) for k in range(5)]
    floor.play(passes=6)
    agreed = {worker.address for worker in chain if floor.replicas(worker)[0].state == ReplicaState.PAYABLE}
    assert len(agreed) == 3
    assert agreed in [{worker.address for worker in chain[k : k + 3]} for k in range(3)]


@SQLITE
def test_two_answers_that_are_not_finite_agree_and_the_job_pauses(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, replication={"replicas": 2, "max_replicas": 2})
    one, other = floor.worker(filled("w", np.nan)), gpu(floor, filled("w", np.nan))
    floor.play(passes=6)
    assert floor.state() == JobState.PAUSED
    assert states(floor, one, other) == [ReplicaState.DIVERGED] * 2
    assert all(worker.newest().told and worker.newest().told.root == worker.newest().root for worker in (one, other))


# what is revealed


def of_other_data(payload: bytes) -> bytes:
    """The bytes of an answer with other numbers."""
    answer = decode_tensors(LAYOUT, payload, codec("fp32"), bytes(32))
    return encode(LAYOUT, answer | {"w": answer["w"] * np.float32(1 / 3)}, codec("fp32"), bytes(32))


HONEST_SKETCH = replace(scaled(3.0), sketches=of_other_data)
"""It commits to a lie, and its sketch is that of the honest answer, or nearly."""


@SQLITE
def test_a_sketch_of_other_data_is_found_at_the_upload_and_the_next_is_asked(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, rounds=50, replication={"replicas": 2, "max_replicas": 2})
    forger, honest = floor.worker(HONEST_SKETCH), gpu(floor)
    floor.until(lambda: judged(floor, forger, ReplicaState.REJECTED))
    floor.cancel()
    (replica,) = [each for each in floor.replicas(forger) if each.state == ReplicaState.REJECTED]
    (task,) = [each for each in floor.tasks() if each.id == replica.task_id]
    assert replica.reason == "its payload is not what its sketch was made of"
    assert task.root in {held.root for held in honest.held.values()}
    assert floor.earned()[honest.address] == floor.earned().get(forger.address, 0) + PRICE
    assert floor.strikes(forger) == 1
    assert [fault.partition(": ")[2] for fault in found(floor, shown(floor, task))] == [
        "rejected, and its ballot is the quorum's: only its payload could show why"
    ]
    check_books(floor)


def judged(floor: Floor, worker: SimWorker, state: ReplicaState) -> bool:
    """Whether a replica of the worker has come to this, and its task is accepted; whom a seed asks first is chance."""
    mine = {replica.task_id for replica in floor.replicas(worker) if replica.state == state}
    return any(task.id in mine and task.payload is not None for task in floor.tasks())


@SQLITE
def test_where_nobody_brings_the_payload_of_its_ballot_the_task_is_tried_again(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, replication={"replicas": 2, "max_replicas": 2})
    one, other = floor.worker(HONEST_SKETCH), gpu(floor, HONEST_SKETCH)
    floor.until(lambda: len(floor.tasks()) > 1)
    assert floor.tasks()[0].state == TaskState.FAILED
    assert floor.tasks()[0].reason == "no agreeing worker brought the payload of its ballot"
    assert floor.earned() == {}
    assert (floor.strikes(one), floor.strikes(other)) == (1, 1)


@SQLITE
def test_who_was_outvoted_has_a_proof_though_the_first_who_was_asked_withholds(new_floor: NewFloor) -> None:
    """Its verdict names the root of a ballot in the quorum, which is not the one that is merged."""
    floor = mixed(new_floor, rounds=50)
    liar, silent, honest = floor.worker(scaled(2.0)), floor.worker(WITHHOLDER), gpu(floor)
    floor.until(lambda: judged(floor, silent, ReplicaState.WITHHELD), seconds=4.0)
    floor.cancel()
    (lazy,) = [replica for replica in floor.replicas(silent) if replica.state == ReplicaState.WITHHELD]
    (task,) = [each for each in floor.tasks() if each.id == lazy.task_id]
    (rejected,) = [replica for replica in floor.replicas(liar) if replica.task_id == task.id]
    assert (rejected.state, rejected.verdict_root) == (ReplicaState.REJECTED, lazy.root)
    assert task.root != lazy.root
    assert task.root in {held.root for held in honest.held.values()}
    assert found(floor, shown(floor, task)) == []
    check_books(floor)


def said(floor: Floor, worker: SimWorker, change: Callable[[Reveal], Reveal]) -> str:
    """What the market answers to another reveal than the worker's own."""
    floor.gather()
    floor.commit()
    worker.hear()
    (refusal,) = worker.say(reveals=[change(worker.revelation(worker.newest()))])
    return refusal.detail


def sketched(**changes: Any) -> Callable[[Reveal], Reveal]:
    """A copy with another sketch."""
    return lambda reveal: reveal.model_copy(
        update={"sketch": reveal.sketch.model_copy(update=changes) if reveal.sketch else None}
    )


def numbers(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, bytes(BYTES))


REFUSED: dict[str, tuple[Callable[[Reveal], Reveal], str]] = {
    "none": (lambda reveal: reveal.model_copy(update={"sketch": None}), "reveal one too"),
    "too few": (sketched(numbers=numbers("loss", "w")), "other tensors than an answer: m"),
    "others": (sketched(numbers=numbers("loss", "w", "b")), "other tensors than an answer: b, m"),
    "other numbers": (sketched(numbers=numbers("loss", "w", "m")), "signed by"),
    "other class": (sketched(determinism_class=GPU), "is of another"),
    "not signed": (sketched(signature=bytes(65)), "neither 27 nor 28"),
}


@SQLITE
@pytest.mark.parametrize(("change", "why"), REFUSED.values(), ids=REFUSED)
def test_a_reveal_without_its_own_sketch_is_refused_and_withheld(
    new_floor: NewFloor, change: Callable[[Reveal], Reveal], why: str
) -> None:
    floor = mixed(new_floor)
    cheater, honest, other = floor.worker(), floor.worker(), gpu(floor)
    assert why in said(floor, cheater, change)
    floor.until(lambda: floor.earned(), honest, other)
    assert states(floor, cheater) == [ReplicaState.WITHHELD]
    assert floor.strikes(cheater) == 1
    assert paid(floor, honest, other)


@SQLITE
def test_a_sketch_is_no_part_of_a_ballot_where_roots_are_compared(new_floor: NewFloor) -> None:
    floor, elsewhere = new_floor(), mixed(new_floor)
    worker, stranger = floor.worker(), elsewhere.worker()
    floor.worker(), floor.worker(), elsewhere.worker(), gpu(elsewhere)
    elsewhere.gather()
    elsewhere.commit()
    stranger.hear()
    sketch = stranger.sketch(stranger.newest())
    assert "reveal no sketch" in said(floor, worker, lambda reveal: reveal.model_copy(update={"sketch": sketch}))


@SQLITE
def test_the_same_reveal_again_changes_nothing_and_another_is_a_conflict(new_floor: NewFloor) -> None:
    floor = mixed(new_floor)
    worker = floor.worker()
    floor.worker(), gpu(floor)
    floor.gather()
    floor.commit()
    worker.hear()
    reveal = worker.revelation(worker.newest())
    assert worker.say(reveals=[reveal, reveal]) == ()
    other = worker.sketch(worker.newest(), numbers=numbers("loss", "w", "m"))
    (refusal,) = worker.say(reveals=[reveal.model_copy(update={"sketch": other})])
    assert refusal.code == "conflict"


# who works together


@SQLITE
def test_a_class_that_is_not_calibrated_is_not_mixed_in(new_floor: NewFloor) -> None:
    floor = new_floor(**SPEC)
    one, two, other = floor.worker(), floor.worker(), gpu(floor)
    floor.play(passes=5)
    assert floor.replicas() == []
    assert "needs 3 separate workers of one determinism class, or of calibrated ones, has 2" in floor.why_waiting()
    floor.calibrate(CPU, GPU)
    floor.play()
    assert paid(floor, one, two, other)


@SQLITE
def test_every_pair_at_work_on_a_task_is_calibrated(new_floor: NewFloor) -> None:
    """The middle one is beside both others, which are not beside each other."""
    floor = mixed(new_floor, CPU, GPU, rounds=1, tasks_per_round=3)
    floor.calibrate(GPU, TPU)
    floor.worker(), floor.worker()
    gpu(floor), floor.worker(NEARBY, determinism_class=TPU), floor.worker(NEARBY, determinism_class=TPU)
    floor.play()
    assert floor.state() == JobState.FINISHED
    for task in floor.tasks():
        classes = {replica.determinism_class for replica in floor.replicas() if replica.task_id == task.id}
        assert not {CPU, TPU} <= classes


@SQLITE
def test_one_class_alone_needs_no_calibration(new_floor: NewFloor) -> None:
    floor = new_floor(**SPEC)
    workers = [floor.worker() for _ in range(3)]
    floor.play()
    assert paid(floor, *workers)
    assert floor.task().allowed == []


@SQLITE
def test_a_task_without_a_quorum_has_no_further_wave(new_floor: NewFloor) -> None:
    """Two of three committed, and differ: who came next would know the seed that they sketched under."""
    floor = mixed(new_floor)
    liar, honest, idle = floor.worker(scaled(2.0)), gpu(floor), floor.worker(Behaviour(commits=False))
    floor.gather()
    floor.commit(liar, honest)
    floor.lapse(11.0)
    floor.reveal(liar, honest)
    first, again = floor.tasks()
    assert (first.state, first.wave, again.attempt) == (TaskState.FAILED, 0, 1)
    assert floor.earned() == {}
    assert idle.address not in {replica.worker for replica in floor.replicas() if replica.outcome}


# audits


def caught(floor: Floor) -> None:
    """Auditors of both classes do what is due."""
    SimAuditor(floor).work()
    SimAuditor(floor, NEARBY, determinism_class=GPU).work()


def until_audits(floor: Floor, seen: Callable[[], object]) -> None:
    """The market goes on beside its auditors until that is seen; whose payload is audited is chance."""
    for _ in range(60):
        if seen():
            return
        for worker in floor.workers:
            worker.ask()
            worker.turn()
        floor.lapse(2.0)
        caught(floor)
    raise AssertionError("it was never seen")


@SQLITE
def test_an_audit_asks_for_the_class_of_the_payload_that_is_used(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, rounds=50, audit={"probability": 1.0})
    one, two, other = floor.worker(), floor.worker(), gpu(floor)
    until_audits(floor, lambda: len({audit.determinism_class for audit in audits_of(floor)}) == 2)
    caught(floor)
    assert {audit.state for audit in audits_of(floor)} == {AuditState.PASSED}
    counted = {(row.operator, row.determinism_class): row.passed for row in floor.all(Reputation)}
    assert set(counted) == {(one.address, CPU), (two.address, CPU), (other.address, GPU)}
    assert counted[one.address, CPU] + counted[other.address, GPU] == len(audits_of(floor))


@SQLITE
def test_colluders_of_two_classes_are_both_found_and_the_outvoted_one_is_paid(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, audit={"probability": 1.0})
    liars = [floor.worker(scaled(2.0)), gpu(floor, scaled(2.0 + 4e-7))]
    honest = floor.worker()
    floor.until(lambda: audits_of(floor))
    assert liars[0].newest().root != liars[1].newest().root
    caught(floor)
    (event,) = floor.events("audit_failed")
    assert set(event["workers"]) == {liar.address for liar in liars}
    assert event["vindicated"] == [honest.address]
    assert {row.operator for row in floor.all(Reputation, Reputation.failed > 0)} == {liar.address for liar in liars}
    assert {row.worker for row in floor.all(Earned, Earned.revoked)} == {liar.address for liar in liars}
    floor.cancel()
    told = shown(floor, floor.tasks()[0])
    assert found(floor, told) == []
    assert any("no audit found its root" in fault for fault in found(floor, changed(told, "audit", value=None)))
    check_books(floor)


@SQLITE
def test_who_was_near_a_liar_and_right_in_its_own_class_loses_nothing(new_floor: NewFloor) -> None:
    """The lie is under the threshold: bits tell it in its own class, and the honest ones of the other stand."""
    floor = mixed(new_floor, rounds=50, audit={"probability": 1.0})
    sly, honest, third = floor.worker(scaled(1 + 3e-6)), gpu(floor), gpu(floor)
    until_audits(floor, lambda: floor.events("audit_failed"))
    (event,) = floor.events("audit_failed")
    assert event["workers"] == [sly.address]
    assert {row.operator for row in floor.all(Reputation, Reputation.failed > 0)} == {sly.address}
    assert {row.worker for row in floor.all(Earned, Earned.revoked)} == {sly.address}
    assert floor.earned()[honest.address] == floor.earned()[third.address] > 0


# what is shown


@SQLITE
def test_each_lie_in_the_evidence_of_a_vote_by_sketches_is_found(new_floor: NewFloor) -> None:
    floor = mixed(new_floor)
    liar, honest, other = floor.worker(scaled(1.01)), floor.worker(), gpu(floor)
    floor.play()
    told = shown(floor, floor.task())
    assert found(floor, told) == []
    place = {each["worker"]: n for n, each in enumerate(told["replicas"])}
    theirs = told["replicas"][place[honest.address]]["sketch"]
    wide, narrow = [{"classes": [CPU, GPU], "tau": dict.fromkeys(theirs, tau)} for tau in (0.5, 1e-9)]
    lies = [
        ("sketch is not signed", changed(told, "replicas", place[liar.address], "sketch", value=theirs)),
        ("sketch is not signed", changed(told, "replicas", place[other.address], "determinism_class", value=TPU)),
        ("no calibration gives the thresholds", changed(told, "allowed", value=[wide])),
        ("no calibration gives the thresholds", changed(told, "allowed", value=[narrow])),
        ("by its ballots the task has the root None", changed(told, "allowed", value=[])),
        ("by its ballots", changed(told, "replicas", place[other.address], "sketch", value=None)),
    ]
    for words, lie in lies:
        assert any(words in fault for fault in found(floor, lie)), words


@SQLITE
def test_a_job_that_shows_no_ballots_yet_shows_no_sketch(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, rounds=2)
    floor.worker(), floor.worker(), gpu(floor)
    floor.gather()
    floor.commit()
    floor.reveal()
    told = shown(floor, floor.tasks()[0])
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
        ({"verifier": {"name": "nearly"}}, "'exact', 'tolerance'"),
        ({"verifier": {"name": "tolerance", "tau": 0.1}}, "Extra inputs"),
    ],
)
def test_a_job_that_cannot_be_voted_on_by_sketches_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        JobSpec.model_validate(BASE | SPEC | changes)
    assert JobSpec.model_validate(BASE | SPEC).verifier.sketched
    assert not JobSpec.model_validate(BASE).verifier.sketched
