"""A side that is in several hearings owes one answer at a time; who owes one holds up its own hearings alone."""

from collections.abc import Callable, Mapping

from gradmarket.market.features.disputes.questions import (
    HEARING_S,
    HearingQuestion,
)
from gradmarket.market.terms import Digest, TaskState
from requester.features.disputes import hearing_exchange, hearing_rows
from requester.features.disputes.hearing_rows import TaskHearing
from requester.features.disputes.hearings import MOST_HELD
from requester.store.tables import Replica
from tests.features.disputes.test_hearings import asked_of, root_of, say, split, traced
from tests.kit.behaviour import scaled
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
FOUR = 4


def list_asked(market: MarketFixture, worker: SimWorker) -> Mapping[str, HearingQuestion]:
    asked = hearing_exchange.list_asked_questions(market.context, worker.address).questions
    return {each.replica: each for each in asked}


def let_last(market: MarketFixture, asked: HearingQuestion) -> float:
    """Lets a hearing go on for ever, as if no side's clock ran out; returns when it began."""
    with market.context.begin() as work:
        (row,) = hearing_rows.list_hearings(work, asked.replica.rsplit("-", 2)[0])
        row.due_at = market.clock() + 100 * HEARING_S
        return row.began


def answer(market: MarketFixture, worker: SimWorker, asked: HearingQuestion) -> None:
    """Answers the first question, with checkpoints that are nonsense but for the last."""
    with market.context.reading() as reader:
        root = Digest(reader.get_one(Replica, asked.replica).root or "")
    say(market, worker, root_of(worker, 3, root), asked)
    market.drive()


def test_a_side_of_four_hearings_has_each_answer_s_whole_time(new_market: NewMarket) -> None:
    """Another one begins once the one before is over."""
    market = traced(new_market, tasks_per_round=FOUR)
    team = split(market, capacity=FOUR)
    assert [task.state for task in market.tasks()] == [TaskState.REFERRED] * FOUR
    for begun in range(1, FOUR + 1):
        for worker in team:
            (asked,) = list_asked(market, worker).values()
            assert (asked.number, asked.until) == (0, int(market.clock()) + HEARING_S)
        for worker in team:
            answer(market, worker, asked_of(market, worker))
        assert len(market.all(TaskHearing)) == begun, "both have answered, and are heard further"
        market.lapse(HEARING_S + 1.0)


def test_a_side_that_owes_an_answer_holds_up_its_own_hearings_for_a_bounded_time(new_market: NewMarket) -> None:
    market = traced(new_market, tasks_per_round=FOUR)
    honest, liar = split(market, capacity=FOUR)
    owed = asked_of(market, honest)
    answer(market, honest, owed)
    assert (list_asked(market, honest), len(list_asked(market, liar))) == ({}, 1)
    wait = let_last(market, owed) + MOST_HELD * HEARING_S - market.clock()
    market.lapse(wait - 1.0)
    assert list_asked(market, honest) == {}
    market.lapse(2.0)
    assert len(list_asked(market, honest)) == 1, "the next one, and the others after it"


def test_the_next_question_of_a_hearing_waits_while_a_side_owes_an_answer_in_another(new_market: NewMarket) -> None:
    market = traced(new_market, tasks_per_round=2)
    honest, liar = split(market, capacity=2)
    first = asked_of(market, honest)
    let_last(market, first)
    market.lapse(MOST_HELD * HEARING_S + 1.0)
    with market.context.begin() as work:
        (row,) = hearing_rows.list_hearings(work, first.replica.rsplit("-", 2)[0])
        hearing_rows.put_off(row, int(market.clock()) + HEARING_S, bytes(65))
    assert len(list_asked(market, honest)) == 2
    for worker in (honest, liar):
        answer(market, worker, next(each for each in list_asked(market, worker).values() if each.roots == first.roots))
    assert [each.number for each in list_asked(market, honest).values()] == [0], "it owes the other one's first answer"
    for worker in (honest, liar):
        answer(market, worker, asked_of(market, worker))
    assert sorted(each.number for each in list_asked(market, honest).values()) == [1]


def test_hearings_without_a_common_side_wait_for_none(new_market: NewMarket) -> None:
    market = traced(new_market, tasks_per_round=2)
    team = split(market, *map(scaled, (1.0, 2.0, 3.0, 4.0)))
    assert [len(list_asked(market, worker)) for worker in team] == [1] * 4
