"""An error that one market causes does not end the work for another."""

from contextlib import ExitStack
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from gradmarket.market.errors import Refused
from worker.journal import Journal
from worker.markets.scheduler import Scheduler


class Session:
    """One market's, whose turn raises `error`."""

    def __init__(self, origin: str, error: Exception | None = None) -> None:
        self.context, self.error = SimpleNamespace(market=SimpleNamespace(origin=origin)), error
        self.in_flight, self.busy, self.worth, self.token, self.turns = 0, False, 1.0, (1, "0x"), 0

    def turn(self, wait_s: float, room: int) -> None:
        self.turns += 1
        if self.error is not None:
            raise self.error

    def look(self) -> None:
        self.turn(0.0, 0)

    def run_upkeep(self) -> None: ...

    def report_problem(self, error: Refused) -> None: ...


@pytest.fixture
def output() -> StringIO:
    return StringIO()


@pytest.fixture
def scheduler(output: StringIO) -> Scheduler:
    settings: Any = SimpleNamespace(origins=(), tokens=(), leases=1, wait_s=0.0, alone=False)
    signals: Any = SimpleNamespace(pause=lambda _seconds: None, leaving=False)
    shared: Any = SimpleNamespace(settings=settings, signals=signals, journal=Journal(stream=output), stack=ExitStack())
    return Scheduler(shared)


@pytest.mark.parametrize(
    "error", [OverflowError("int too large"), KeyError("rounds"), TypeError("no number"), Refused("no")]
)
def test_the_others_are_worked_for_while_one_rests(scheduler: Scheduler, output: StringIO, error: Exception) -> None:
    evil, honest = Session("http://evil.example", error), Session("http://honest.example")
    scheduler.sessions = [evil, honest]  # type: ignore[list-item]
    for _ in range(3):
        scheduler.turn()
    assert (evil.turns, honest.turns) == (1, 3)
    if not isinstance(error, Refused):
        assert f"http://evil.example is not asked for a while: {type(error).__name__}" in output.getvalue()
    scheduler._resting.clear()
    scheduler._estimate_session_worth(evil)  # type: ignore[arg-type]
    assert not scheduler._may_poll_market("http://evil.example")


def test_the_own_machine_s_faults_end_it(scheduler: Scheduler) -> None:
    scheduler.sessions = [Session("http://honest.example", OSError(28, "No space left"))]  # type: ignore[list-item]
    with pytest.raises(OSError, match="No space"):
        scheduler.turn()
