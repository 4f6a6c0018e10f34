"""The alarm on a patient lean, at the merges of a service: a leaning operator raises it in time, honest ones never."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from gradmarket.market.features import drift as rule
from gradmarket.market.features.drift import Contribution, Line
from gradmarket.market.terms import Address, Digest, JobState, RoundState
from gradmarket.market.views.job_views import DriftView
from graphdoc import tensors
from requester.api.job_views import round_view
from requester.features.drift import lean_rows, record_leans, seed_of
from requester.features.drift.lean_rows import Lean
from requester.store.tables import Job, Round, Task
from tests.features.metrics.test_tallies import measured
from tests.kit.behaviour import HONEST, Arrays, Behaviour
from tests.kit.whole_merge import flatten_tensors
from tests.requester.market_fixture import LAYOUT, MarketFixture
from tests.requester.market_workers import honest_answer

NewMarket = Callable[..., MarketFixture]
OPERATORS = ("ann", "bea", "mallory")
PUSH = np.array([0.5, -0.5, 0.5, 0.5], np.float32)


def _leaning(answer: Arrays, _address: Address) -> Arrays:
    return answer | {"w": answer["w"] + PUSH}


def load_sums(market: MarketFixture, before: int) -> dict[str, rule.Drift]:
    with market.reading() as reader:
        return lean_rows.list_sums_before(lean_rows.of_job(reader, market.job), before)


def drift_of(market: MarketFixture, number: int) -> DriftView | None:
    with market.reading() as reader:
        return round_view(reader, market.rounds()[number], "1").drift


def merge(market: MarketFixture, number: int, answers: Sequence[Contribution]) -> None:
    """Does a merge's part about drift, in a round whose gradients are given as sketches."""
    with market.context.begin() as work:
        row = work.get(Round, (market.job, number))
        if row is None:
            row = Round(job_id=market.job, number=number, state=RoundState.CLOSED, parameters="", price=1)
            row.optimizer_state, row.opened_at = "", market.clock()
            work.add(row)
        record_leans(work, work.get_one(Job, market.job), row, answers, market.clock())


def rounds(push: float) -> Iterator[list[Contribution]]:
    """Honest answers that differ by their rows, and mallory's, whose are moved one way besides."""
    random = np.random.default_rng(3)
    while True:
        lines: list[Line] = [random.standard_normal(rule.SKETCH_WIDTH) for _ in OPERATORS]
        lines[-1] += push * np.eye(rule.SKETCH_WIDTH)[0]
        yield [Contribution(frozenset({name}), line) for name, line in zip(OPERATORS, lines, strict=True)]


@pytest.fixture
def market(new_market: NewMarket) -> MarketFixture:
    market = new_market()
    with market.context.begin() as work:
        work.session.query(Task).delete()
        work.session.query(Round).delete()
    return market


def test_a_leaning_operator_is_recorded_once_and_stays_listed(market: MarketFixture) -> None:
    after = rounds(push=24.0)
    for number in range(60):
        merge(market, number, next(after))
    (event,) = market.events("leaning")
    assert event["operator"] == "mallory"
    assert 38 < event["round"] < 59
    assert event["lean"] > event["limit"]
    assert "mallory" in market.the_job().reason
    assert drift_of(market, event["round"] - 1) == DriftView(operators=3, leaning=[])
    for number in (event["round"], 59):
        assert drift_of(market, number) == DriftView(operators=3, leaning=["mallory"])
    assert measured(market)["gradmarket_leaning_operators", market.job] == 1


def test_an_honest_operator_raises_no_drift_alarm(market: MarketFixture) -> None:
    after = rounds(push=0.0)
    for number in range(90):
        merge(market, number, next(after))
    assert market.events("leaning") == []
    assert market.the_job().reason == ""
    assert drift_of(market, 89) == DriftView(operators=3, leaning=[])
    assert measured(market)["gradmarket_leaning_operators", market.job] == 0
    assert all(lean.rounds == 90 for lean in load_sums(market, 90).values())
    assert len(market.all(Lean)) <= 4 * len(OPERATORS), "what no round taken back can need is gone"


def test_a_round_that_is_taken_back_takes_its_leans_with_it(market: MarketFixture) -> None:
    first = list(zip(range(8), rounds(push=1.0), strict=False))
    for number, answers in first:
        merge(market, number, answers)
    before = load_sums(market, 6)
    for number, answers in first[6:]:
        merge(market, number, answers[:2])
    again = rule.after_round(rule.after_round(before, first[6][1][:2]), first[7][1][:2])
    for operator, lean in load_sums(market, 8).items():
        assert lean.rounds == again[operator].rounds
        assert np.array_equal(lean.total, again[operator].total)
    assert load_sums(market, 8)["mallory"].rounds == 6


def test_a_merge_sketches_what_was_accepted_and_an_honest_run_raises_no_alarm(new_market: NewMarket) -> None:
    """One replica decides a task and hardly any is audited: only the alarm is left."""
    alone = {"name": "audited", "audit": 1e-9}
    market = new_market(rounds=3, tasks_per_round=2, replication=alone)
    market.prove_class()
    patient, _ = market.worker(Behaviour(_leaning)), market.worker(HONEST)
    market.play()
    assert market.state() == JobState.FINISHED
    expected: dict[str, rule.Drift] = {}
    for row in market.rounds():
        expected = rule.after_round(expected, list(answers_of(market, row, patient.address)))
    found = load_sums(market, 3)
    assert found.keys() == expected.keys() == {worker.address for worker in market.workers}
    assert all(np.array_equal(found[name].total, expected[name].total) for name in found)
    assert market.events("leaning") == []


def answers_of(market: MarketFixture, row: Round, patient: str) -> Iterator[Contribution]:
    """Yields the answer of each of the round's tasks, computed anew."""
    seed = seed_of(market.the_job())
    parameters = tensors.unpack_tensors(market.context.blobs.read(Digest(row.parameters)))
    worked = {replica.task_id: replica.operator for replica in market.replicas()}
    for task in market.tasks(Task.round == row.number):
        answer = honest_answer(parameters, task.offer.seed)
        given = _leaning(answer, Address(patient)) if worked[task.id] == patient else answer
        line = rule.sketch_gradient(LAYOUT, [(0, flatten_tensors(LAYOUT, given))], seed)
        yield Contribution(frozenset({worked[task.id]}), line)


def test_where_all_agree_on_all_answers_there_is_nothing_to_compare(new_market: NewMarket) -> None:
    market = new_market(rounds=1, tasks_per_round=1)
    for _ in range(3):
        market.worker()
    market.play()
    assert drift_of(market, 0) is None
    assert market.all(Lean) == []
