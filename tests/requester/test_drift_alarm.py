"""The alarm on a patient lean, at the merges of a service: who leans raises it in time, honest operators never."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from databases import SQLITE
from market_floor import LAYOUT, Floor
from market_workers import HONEST, Answer, Behaviour, honest_answer
from test_tallies import measured

from gradmarket.market.gradient.payload import flatten
from gradmarket.market.model import tensors
from gradmarket.market.rules import drift as rule
from gradmarket.market.rules.drift import Contribution, Line
from gradmarket.market.terms import Address, Digest, JobState, RoundState
from gradmarket.requester.api.views.jobs import DriftView, round_view
from gradmarket.requester.stages import drift
from gradmarket.requester.store import leans
from gradmarket.requester.store.tables import Job, Lean, Round, Task

NewFloor = Callable[..., Floor]
OPERATORS = ("ann", "bea", "mallory")
PUSH = np.array([0.5, -0.5, 0.5, 0.5], np.float32)


def _leaning(answer: Answer, _address: Address) -> Answer:
    return answer | {"w": answer["w"] + PUSH}


def kept(floor: Floor, before: int) -> dict[str, rule.Lean]:
    with floor.reading() as session:
        return leans.before(session, floor.job, before)


def drift_of(floor: Floor, number: int) -> DriftView | None:
    return round_view(floor.rounds()[number], "1").drift


def merge(floor: Floor, number: int, answers: Sequence[Contribution]) -> None:
    """What a merge does about drift, in a round whose gradients are given as sketches."""
    with floor.context.begin() as session:
        row = session.get(Round, (floor.job, number))
        if row is None:
            row = Round(job_id=floor.job, number=number, state=RoundState.CLOSED, parameters="", price=1)
            row.optimizer_state, row.opened_at = "", floor.clock()
            session.add(row)
        drift.keep(session, session.get_one(Job, floor.job), row, answers, floor.clock())


def rounds(push: float) -> Iterator[list[Contribution]]:
    """Honest answers that differ by their rows, and mallory's, whose are moved one way besides."""
    random = np.random.default_rng(3)
    while True:
        lines: list[Line] = [random.standard_normal(rule.WIDTH) for _ in OPERATORS]
        lines[-1] += push * np.eye(rule.WIDTH)[0]
        yield [Contribution(frozenset({name}), line) for name, line in zip(OPERATORS, lines, strict=True)]


@pytest.fixture
def floor(new_floor: NewFloor) -> Floor:
    floor = new_floor()
    with floor.context.begin() as session:
        session.query(Task).delete()
        session.query(Round).delete()
    return floor


@SQLITE
def test_who_leans_is_told_once_and_stays_told(floor: Floor) -> None:
    after = rounds(push=24.0)
    for number in range(90):
        merge(floor, number, next(after))
    (event,) = floor.events("leaning")
    assert event["operator"] == "mallory"
    assert 60 < event["round"] < 89
    assert event["lean"] > event["limit"]
    assert "mallory" in floor.the_job().reason
    assert drift_of(floor, event["round"] - 1) == DriftView(operators=3, leaning=[])
    for number in (event["round"], 89):
        assert drift_of(floor, number) == DriftView(operators=3, leaning=["mallory"])
    assert measured(floor)["gradmarket_leaning_operators", floor.job] == 1


@SQLITE
def test_its_honest_twin_is_not(floor: Floor) -> None:
    after = rounds(push=0.0)
    for number in range(90):
        merge(floor, number, next(after))
    assert floor.events("leaning") == []
    assert floor.the_job().reason == ""
    assert drift_of(floor, 89) == DriftView(operators=3, leaning=[])
    assert measured(floor)["gradmarket_leaning_operators", floor.job] == 0
    assert all(lean.rounds == 90 for lean in kept(floor, 90).values())
    assert len(floor.all(Lean)) <= 4 * len(OPERATORS), "what no round taken back can need is gone"


def test_a_round_that_is_taken_back_takes_its_leans_with_it(floor: Floor) -> None:
    first = list(zip(range(8), rounds(push=1.0), strict=False))
    for number, answers in first:
        merge(floor, number, answers)
    before = kept(floor, 6)
    for number, answers in first[6:]:
        merge(floor, number, answers[:2])
    again = rule.after_round(rule.after_round(before, first[6][1][:2]), first[7][1][:2])
    for operator, lean in kept(floor, 8).items():
        assert lean.rounds == again[operator].rounds
        assert np.array_equal(lean.total, again[operator].total)
    assert kept(floor, 8)["mallory"].rounds == 6


@SQLITE
def test_a_merge_sketches_what_was_accepted_and_an_honest_run_raises_no_alarm(new_floor: NewFloor) -> None:
    """One replica decides a task and hardly any is audited: what is left is the alarm."""
    alone = {"name": "audited", "audit": 1e-9}
    floor = new_floor(rounds=3, tasks_per_round=2, replication=alone)
    floor.prove_class()
    patient, _ = floor.worker(Behaviour(_leaning)), floor.worker(HONEST)
    floor.play()
    assert floor.state() == JobState.FINISHED
    expected: dict[str, rule.Lean] = {}
    for row in floor.rounds():
        expected = rule.after_round(expected, list(answers_of(floor, row, patient.address)))
    found = kept(floor, 3)
    assert found.keys() == expected.keys() == {worker.address for worker in floor.workers}
    assert all(np.array_equal(found[name].total, expected[name].total) for name in found)
    assert floor.events("leaning") == []


def answers_of(floor: Floor, row: Round, patient: str) -> Iterator[Contribution]:
    """What each of the round's tasks was answered, computed anew."""
    seed = drift.seed_of(floor.the_job())
    parameters = tensors.unpack(floor.context.blobs.read(Digest(row.parameters)))
    worked = {replica.task_id: replica.operator for replica in floor.replicas()}
    for task in floor.tasks(Task.round == row.number):
        answer = honest_answer(parameters, bytes.fromhex(task.offer["seed"][2:]))
        given = _leaning(answer, Address(patient)) if worked[task.id] == patient else answer
        line = rule.line(LAYOUT, [(0, flatten(LAYOUT, given))], seed)
        yield Contribution(frozenset({worked[task.id]}), line)


@SQLITE
def test_where_all_agree_on_all_answers_there_is_nothing_to_compare(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=1, tasks_per_round=1)
    for _ in range(3):
        floor.worker()
    floor.play()
    assert drift_of(floor, 0) is None
    assert floor.all(Lean) == []
