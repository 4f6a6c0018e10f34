"""A job whose rounds grow: every round has its tasks, its money and its rows, and the model is the formula's."""

from fractions import Fraction

import pytest

from gradmarket.market.terms import JobState, RoundState
from requester.features.coverage import coverage_rows
from requester.store import jobs
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import PRICE
from tests.requester.test_overlapped_rounds import LIE, NewMarket, check_formula_end, closed, staffed
from tests.requester.test_overlapped_rounds import SPEC as OVERLAPPED

GROWING = {"overlap": 0, "rounds": 4, "growth": [{"round": 1, "tasks": 3}, {"round": 3, "tasks": 5}]}
SIZES = [2, 3, 3, 5]


@FULL
@pytest.mark.parametrize("sampling", ["rounds", "epochs"])
def test_a_job_of_growing_rounds_ends_with_the_formula_s_bits(new_market: NewMarket, sampling: str) -> None:
    market = staffed(new_market, sampling=sampling, **GROWING)
    market.play()
    check_formula_end(market)
    with market.context.reading() as reader:
        taken = coverage_rows.count_by_partition(reader, market.the_job(), 3)
    spec, tasks = jobs.load_spec(market.the_job()), market.tasks()
    assert [sum(task.round == number for task in tasks) for number in range(4)] == SIZES
    assert sorted(spec.place(task.round, task.index) for task in tasks) == list(range(13))
    assert taken == {number: len(range(number, 13, 3)) for number in range(3)}


@FULL
def test_a_lie_found_after_rounds_have_grown_is_taken_back_with_their_tasks(new_market: NewMarket) -> None:
    market = new_market(**OVERLAPPED | GROWING | {"audit": {"probability": 1.0}})
    market.worker(LIE).capacity, market.worker(LIE).capacity, market.worker().capacity = 2, 2, 2
    market.until(lambda: closed(market) >= 1)
    for liar in market.workers[:2]:
        liar.behaviour = market.workers[2].behaviour
    market.until(lambda: closed(market) == 2)
    market.worker().capacity, market.worker().capacity = 2, 2
    SimAuditor(market).play()
    assert [event["round"] for event in market.events("rewound")] == [0]
    check_formula_end(market)
    accepted = [task for task in market.tasks() if task.used]
    assert [sum(task.round == number for task in accepted) for number in range(4)] == SIZES


@FULL
def test_rounds_grow_while_they_overlap(new_market: NewMarket) -> None:
    market = staffed(new_market, **GROWING | {"overlap": 1})
    market.play()
    check_formula_end(market)
    assert [sum(task.round == number for task in market.tasks()) for number in range(4)] == SIZES


def test_a_deposit_that_does_not_cover_the_larger_round_pauses_the_job_before_it(new_market: NewMarket) -> None:
    """Two rounds of two tasks are covered; one of five, of which each takes its quorum of two, is not."""
    growing = {"overlap": 0, "rounds": 4, "growth": [{"round": 2, "tasks": 5}]}
    spent, quorum, replicas = 2 * 2, 2, 3
    market = staffed(new_market, **growing)
    with market.context.begin() as work:
        job = work.get_one(type(market.the_job()), market.job)
        job.budget = job.deposited = PRICE * (replicas * spent + quorum * 5) - 1
    market.play()
    assert market.state() == JobState.PAUSED
    assert "does not cover" in market.the_job().reason
    assert [row.state for row in market.rounds()] == [RoundState.CLOSED] * 2


@FULL
def test_newcomers_are_allowed_the_money_of_the_round_that_is_open(new_market: NewMarket) -> None:
    market = staffed(new_market, **GROWING)
    with market.context.reading() as reader:
        before = jobs.count_places(reader, market.the_job())
    market.play()
    with market.context.reading() as reader:
        after = jobs.count_places(reader, market.the_job())
    assert Fraction(after, before) == Fraction(SIZES[-1], SIZES[0])
    assert OVERLAPPED["tasks_per_round"] == SIZES[0]
