"""A hearing's time and memory at its service: clocks, the rows that a sweep reads, one long answer at a time."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import HTTPException
from sqlalchemy import event

from gradmarket.market.errors import NotFound
from gradmarket.market.features.disputes import questions
from gradmarket.market.features.disputes.questions import HEARING_S
from gradmarket.market.terms import Address
from gradmarket.market.wire.hearing_messages import MOST_SAID
from requester.features.disputes import hearing_exchange, hearing_rows
from requester.features.disputes.hearing_rows import AT_ONCE, HearingValue, TaskHearing
from tests.features.disputes.test_hearings import asked_of, bring, root_of, say, sign_answer, split, traced
from tests.patience import wait_for, wait_for_end
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]
SUM_S = 30
"""Seconds for all answers of a side: fewer than for one."""


@pytest.fixture
def short_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RUNS": 1, "MOST_LATER": -1, "SPARE_S": SUM_S}.items():  # the sides are of other classes
        monkeypatch.setattr(questions, name, value)


@pytest.mark.usefixtures("short_clocks")
def test_a_side_whose_clock_ran_out_loses_before_the_question_ends(new_market: NewMarket) -> None:
    market = traced(new_market)
    team, began = split(market), market.clock()
    (honest, liar), spent = team, SUM_S - 10
    say(market, honest, root_of(honest, 3))
    market.clock.now += spent
    say(market, liar, root_of(liar, 3))
    market.drive()
    assert {asked_of(market, worker).number for worker in team} == {1}
    (row,) = market.all(TaskHearing)
    assert row.find_ends() == {honest.address: began + spent + SUM_S, liar.address: began + spent + 10}
    body = b"\1" * 64
    late = sign_answer(market, liar, body)
    market.clock.now += 11
    assert market.clock() < asked_of(market, liar).until
    with pytest.raises(NotFound, match="late"):
        hearing_exchange.admit_answer(market.context, liar.address, late)
    hearing_exchange.admit_answer(market.context, honest.address, sign_answer(market, honest, body))
    market.drive()
    (told,) = market.events("heard")
    assert (told["wrong"], told["reason"]) == ([liar.address], "it did not answer in time")


def test_a_sweep_reads_no_hearing_that_waits_and_so_many_at_once_of_those_that_are_due(new_market: NewMarket) -> None:
    market = traced(new_market)
    split(market)
    (row,) = market.all(TaskHearing)
    columns = {column.key: getattr(row, column.key) for column in TaskHearing.__table__.columns}
    with market.context.begin() as work:
        for number in range(1, AT_ONCE + 2):
            work.add(TaskHearing(**{**columns, "number": number}))
    loaded = list[object]()

    def note(target: object, _context: Any) -> None:
        loaded.append(target)

    event.listen(TaskHearing, "load", note)
    try:
        with market.context.reading() as reader:
            waiting = hearing_rows.list_ready_tasks(reader, market.clock())
            due = hearing_rows.list_ready_tasks(reader, market.clock() + HEARING_S + 1.0)
    finally:
        event.remove(TaskHearing, "load", note)
    assert (waiting, len(due), loaded) == ([], AT_ONCE, [])


def test_a_side_whose_clock_ran_out_has_until_the_question_is_put_and_no_less() -> None:
    clocks, side = questions.SideClocks(HEARING_S, across=False), Address("0x" + "11" * 20)
    total = questions.count_total(HEARING_S, across=False)
    clocks.stop(side, HEARING_S, total + 5)
    assert clocks.find_end(side, 9 * HEARING_S) == 8 * HEARING_S


class WatchedLock:
    """A lock that tells when somebody waits for it."""

    def __init__(self) -> None:
        self.held, self.wanted = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        self.wanted.set()
        self.held.acquire()

    def __exit__(self, *_: object) -> None:
        self.held.release()


def test_a_long_answer_waits_while_another_is_in_memory_and_a_short_one_does_not(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = WatchedLock()
    monkeypatch.setattr(hearing_exchange, "_LONG", lock)
    market = traced(new_market)
    honest, liar = split(market)
    with market.context.begin() as work:
        (row,) = hearing_rows.list_hearings(work, market.task().id)
        row.most_bytes = MOST_SAID + 1
    body = bytes(MOST_SAID + 1)
    bringing = threading.Thread(target=say, args=(market, honest, body))
    with lock.held:
        bringing.start()
        wait_for(lock.wanted)
        say(market, liar, root_of(liar, 3))
        assert market.all(HearingValue) == []
        assert market.all(TaskHearing)[0].answered == {liar.address}
    wait_for_end(bringing)
    assert [value.body for value in market.all(HearingValue)] == [body]


@pytest.mark.parametrize("in_time", [True, False])
def test_an_answer_counts_from_when_it_arrived_and_not_from_when_it_was_stored(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    """It waits for another one to be stored, until its own time is over; one that came after its time is late."""
    lock = WatchedLock()
    monkeypatch.setattr(hearing_exchange, "_LONG", lock)
    market = traced(new_market)
    honest, _ = split(market)
    ask_for_values(market)
    body, until = bytes(MOST_SAID + 1), asked_of(market, honest).until
    said, refusals = sign_answer(market, honest, body), list[HTTPException | NotFound]()

    async def receive() -> dict[str, Any]:
        market.clock.now = until - 1.0 if in_time else until + 1.0
        return {"type": "http.request", "body": body, "more_body": False}

    def send() -> None:
        try:
            bring(market, honest, said, len(body), receive)
        except (HTTPException, NotFound) as error:
            refusals.append(error)

    bringing = threading.Thread(target=send)
    with lock.held:
        bringing.start()
        wait_for(lock.wanted)
        market.clock.now = until + hearing_rows.QUEUE_S - 1.0
        market.drive()
        assert market.events("heard") == []
    wait_for_end(bringing)
    assert [reply.at for row in market.all(TaskHearing) for reply in row.open.answers] == [until - 1] * in_time
    assert len(refusals) == (not in_time)
    market.lapse(2.0)
    assert len(market.events("heard")) == 1, "the other side was silent"


def ask_for_values(market: MarketFixture) -> None:
    """As if the hearing had come to its operation."""
    with market.context.begin() as work:
        (row,) = hearing_rows.list_hearings(work, market.task().id)
        asked = row.open.model_copy(update={"asked": "values"})
        row.questions, row.most_bytes = [asked.model_dump(mode="json")], 2 * MOST_SAID
        row.due_at = row.find_due()
