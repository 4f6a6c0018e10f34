"""A copy of the database is put back while workers poll: they know of rounds that it does not. The job has its reason
to wait, for any work in flight at the copy, and goes on with other workers."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gradmarket.market.rules.assignment import Idle
from gradmarket.market.terms import JobState
from tests.lanes import FULL
from tests.requester.books import check_books

STEPS = ("nothing", "leased", "committed", "revealed")


def copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


@FULL
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("step", STEPS)
def test_a_restored_job_has_the_reason_of_workers_that_ask_for_nothing(new_market, tmp_path: Path, step: str) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3)
    known = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2, *known)
    for move in (market.gather, market.commit, market.reveal)[: STEPS.index(step)]:
        move(*known)
    place = Path(market._database.url.removeprefix("sqlite:///"))
    copy_database(place, tmp_path / "backup.sqlite")
    market.until(lambda: len(market.rounds()) == 3, *known)
    copy_database(tmp_path / "backup.sqlite", place)
    market.crash()
    assert len(market.rounds()) == 2
    told = list[str]()
    for _ in range(40):
        for worker in known:
            worker.send_poll(capacity=0)
        market.lapse(2.0)
        told.append(market.why_waiting())
    assert all(told[20:]), "a further attempt at the task is not news of its workers"
    assert Idle.ASKS_NOTHING in told[-1]
    market.workers.clear()  # a scripted worker goes on about replicas that the copy does not know
    market.play(*(market.worker() for _ in range(3)))
    assert market.state() == JobState.FINISHED
    check_books(market)
