"""Works for several markets: asks the best paying one for work first, and computes one step at a time.

A single market is a special case: there is nothing to choose, so polls wait as long as they may.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.errors import MarketError
from gradmarket.market.wire.sign_in import ChainFacts
from worker import Untrusted
from worker.markets.leasing import UNFIT
from worker.markets.loop import BUSY_WAIT_S
from worker.markets.market_session import PROBLEM_PAUSE_S, MarketSession, Shared, describe_problem, open_market_session
from worker.protocol.client import MarketClient
from worker.protocol.worth import rank_markets

IDLE_WAIT_S: Final = 1.0
"""Seconds that a poll waits at each of several markets while nothing is in flight anywhere."""
GIVEN_UP_S: Final = 1.0
"""Seconds for which an unreachable market is retried before the other markets get their turn."""
UPKEEP_S: Final = 30.0
"""Seconds for which a single unreachable market is retried before its vouchers are checked: claims end regardless."""
REST_S: Final = 15.0
"""Seconds for which an unreachable or refused market is skipped."""
RANKED_S: Final = 300.0
LOOK_S: Final = 15.0
"""Seconds between searches of the chain for new markets."""


class MarketSource(ABC):
    """Finds markets beside those that the worker's owner names."""

    @abstractmethod
    def join_markets(self, scheduler: "Scheduler") -> None:
        """Called once the named markets are joined, and every LOOK_S seconds; joins markets and leaves some of them.

        Logs failures. Raises Refused where the settings do not suffice.
        """


class Scheduler:
    """Takes turns among the joined markets, `sessions`."""

    def __init__(self, shared: Shared, sources: Sequence[MarketSource] = ()) -> None:
        self._shared = shared
        self._sources = sources
        self.sessions: list[MarketSession] = []
        self._resting: dict[str, float] = {}
        self._ranked_at = self._looked = time.monotonic()
        self._alone = shared.settings.alone

    def start(self) -> None:
        """Joins the named markets and those announced on the chain.

        If there is only one market, joining it must succeed.
        """
        for origin in self._shared.settings.origins:
            if self._alone:
                self.join(origin, MarketClient.facts)
            else:
                self._try_to_join(origin)
        for source in self._sources:
            source.join_markets(self)

    def turn(self) -> None:
        """Polls for work in flight; if it has room for more, asks the best paying market first."""
        if self._alone:
            self._turn_alone(self.sessions[0])
            return
        if time.monotonic() - self._looked > LOOK_S:
            self._look_around()
        awake = [session for session in self._rank_sessions() if self._may_poll_market(session.context.market.origin)]
        room = self._shared.settings.leases - sum(session.in_flight for session in self.sessions)
        polled = [session for session in awake if room > 0 or session.in_flight]
        self._poll_all(polled, room)
        if not polled:
            self._shared.signals.pause(IDLE_WAIT_S)

    def leave(self, until: float) -> None:
        """Finishes work in flight until `until` (monotonic), one market after the other, and redeems all money."""
        while (busy := [session for session in self.sessions if session.busy]) and time.monotonic() < until:
            for session in busy:
                left = max(0.0, until - time.monotonic())
                session.finish(min(self._shared.settings.wait_s, BUSY_WAIT_S, left) / len(busy))
        for session in self.sessions:
            session.leave()

    def _rank_sessions(self) -> list[MarketSession]:
        """Returns the sessions grouped by token, best paying first in each.

        Tokens come in the order of the named markets, then of the named tokens.
        """
        settings = self._shared.settings
        places: dict[object, int] = {one: number for number, one in enumerate((*settings.origins, *settings.tokens))}

        def place(session: MarketSession) -> int:
            return places.get(session.context.market.origin, places.get(session.token[1], len(places)))

        sessions = sorted(self.sessions, key=place)
        return [sessions[index] for index in rank_markets([(session.token, session.worth) for session in sessions])]

    def _poll_all(self, sessions: list[MarketSession], room: int) -> None:
        """Asks for work until one market gives some; polls the others only for work in flight, without delay."""
        for session in sessions:
            before = session.in_flight
            if room > 0 or before:
                self._poll_session(session, room, len(sessions))
            if session.in_flight > before:
                room = 0

    def _turn_alone(self, session: MarketSession) -> None:
        try:
            session.turn_patiently()
        except ServiceUnreachable:
            if self._shared.signals.leaving:
                raise
        session.run_upkeep()

    def _poll_session(self, session: MarketSession, room: int, asked: int) -> None:
        wait_s = IDLE_WAIT_S if room > 0 else min(self._shared.settings.wait_s, BUSY_WAIT_S) / max(1, asked)
        try:
            session.turn(wait_s=min(wait_s, self._shared.settings.wait_s), room=max(0, room))
        except (ServiceUnreachable, Untrusted) as error:
            self._pause_market(session.context.market.origin, error)
        except MarketError as error:
            session.report_problem(error)
            self._resting[session.context.market.origin] = time.monotonic() + PROBLEM_PAUSE_S
        except UNFIT as error:
            self._pause_market(session.context.market.origin, error)
        session.run_upkeep()

    def _look_around(self) -> None:
        """Retries unreachable markets, joins new ones, and ranks all of them again every RANKED_S seconds."""
        self._looked = time.monotonic()
        joined = {session.context.market.origin for session in self.sessions}
        for origin in self._shared.settings.origins:
            if origin not in joined and self._may_poll_market(origin):
                self._try_to_join(origin)
        for source in self._sources:
            source.join_markets(self)
        if time.monotonic() - self._ranked_at > RANKED_S:
            self._ranked_at = time.monotonic()
            for session in self.sessions:
                self._estimate_session_worth(session)

    def _estimate_session_worth(self, session: MarketSession) -> None:
        try:
            session.look()
        except UNFIT as error:
            self._pause_market(session.context.market.origin, error)

    def leave_market(self, session: MarketSession, opened: ExitStack) -> None:
        """Leaves a market whose `join` returned these two."""
        session.leave()
        self.sessions.remove(session)
        opened.close()

    def _try_to_join(self, origin: str) -> None:
        try:
            self.join(origin, MarketClient.facts)
        except UNFIT as error:
            self._pause_market(origin, error)

    def join(
        self, origin: str, facts: Callable[[MarketClient], ChainFacts], named: bool = True
    ) -> tuple[MarketSession, ExitStack]:
        """Joins a market; returns it with its open resources. Releases everything if that fails."""
        with ExitStack() as stack:
            market = MarketClient(origin, self._retries, self._shared.signals.pause, self._shared.journal, not named)
            stack.callback(market.close)
            session = open_market_session(replace(self._shared, stack=stack), market, facts(market), named)
            session.start()
            self.sessions.append(session)
            kept = stack.pop_all()
            self._shared.stack.callback(kept.close)
            return session, kept

    def _retries(self, seconds: float) -> bool:
        if self._shared.signals.at_once:
            return False
        if self._shared.signals.leaving:
            return seconds < self._shared.settings.leave_market_s
        if self._alone:
            return not self.sessions or seconds < UPKEEP_S
        return seconds < GIVEN_UP_S

    def _pause_market(self, origin: str, error: Exception) -> None:
        """Pauses requests to the market for a while: an error that it caused concerns no other market."""
        self._resting[origin] = time.monotonic() + REST_S
        text = f"{origin} is not asked for a while: {describe_problem(error)}"
        self._shared.journal.report("resting", text, market=origin)

    def _may_poll_market(self, origin: str) -> bool:
        return self._resting.get(origin, 0.0) <= time.monotonic()
