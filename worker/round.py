"""From market to market: the best paying is asked for work first, and one step is computed at a time.

A worker with one market is its own case: nothing is to be chosen, so it waits there as long as its polls may.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import Final

from gradmarket.contracts.errors import ChainError
from gradmarket.contracts.rpc import connect
from gradmarket.market.errors import MarketError
from gradmarket.market.wire import ChainFacts
from gradmarket.worker.client import Market
from gradmarket.worker.discovery import Announcement, Discovery, checked, origin_of
from gradmarket.worker.loop import BUSY_WAIT_S
from gradmarket.worker.problems import Unreachable, Untrusted
from gradmarket.worker.stall import PROBLEM_PAUSE_S, Crew, Stall, opened
from gradmarket.worker.worth import ranked

IDLE_WAIT_S: Final = 1.0
"""At each of several markets, while nothing is in flight anywhere."""
GIVEN_UP_S: Final = 1.0
"""How long one of several markets may be silent before the others have their turn."""
UPKEEP_S: Final = 30.0
"""How long a single market may be silent before its vouchers are looked after: claims end without it too."""
REST_S: Final = 15.0
"""How long a market that was silent, or was refused, is left alone."""
RANKED_S: Final = 300.0
LOOK_S: Final = 15.0
"""Between looks at the chain for new markets."""
MOST: Final = 16
"""Markets at once: none is discovered beyond them."""


class Round:
    """`stalls` are the markets that were joined."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.stalls: list[Stall] = []
        self._resting: dict[str, float] = {}
        self._waiting: list[Announcement] = []
        self._ranked_at = self._looked = time.monotonic()
        self._alone = len(crew.settings.origins) == 1 and not crew.settings.discover

    @cached_property
    def _discovery(self) -> Discovery | None:
        settings = self._crew.settings
        return Discovery(connect(settings.node), settings.since) if settings.discover and settings.node else None

    def start(self) -> None:
        """Joins the named markets and those that announce themselves. One market alone must be sound."""
        for origin in self._crew.settings.origins:
            if self._alone:
                self._join(origin, Market.facts)
            else:
                self._try_to_join(origin)
        self._discover()

    def turn(self) -> None:
        """Polls for what is in flight; where there is room for more, asks the best paying first."""
        if self._alone:
            self._turn_alone(self.stalls[0])
            return
        if time.monotonic() - self._looked > LOOK_S:
            self._look_around()
        awake = [stall for stall in self._ranked() if self._awake(stall.desk.market.origin)]
        room = self._crew.settings.leases - sum(stall.in_flight for stall in self.stalls)
        asked = [stall for stall in awake if room > 0 or stall.in_flight]
        self._ask_all(asked, room)
        if not asked:
            self._crew.signals.pause(IDLE_WAIT_S)

    def leave(self, until: float) -> None:
        """Finishes what is in flight until then (monotonic), each market in its turn, and takes all money along."""
        while (busy := [stall for stall in self.stalls if stall.busy]) and time.monotonic() < until:
            for stall in busy:
                left = max(0.0, until - time.monotonic())
                stall.finish(min(self._crew.settings.wait_s, BUSY_WAIT_S, left) / len(busy))
        for stall in self.stalls:
            stall.leave()

    def _ranked(self) -> list[Stall]:
        """The best paying first, within each token; these in the order that the markets are named, then discovered."""
        place = {origin: number for number, origin in enumerate(self._crew.settings.origins)}
        stalls = sorted(self.stalls, key=lambda stall: place.get(stall.desk.market.origin, len(place)))
        return [stalls[index] for index in ranked([(stall.token, stall.worth) for stall in stalls])]

    def _ask_all(self, stalls: list[Stall], room: int) -> None:
        """Until one gives work: the others are then polled for what is in flight, which waits for nobody."""
        for stall in stalls:
            before = stall.in_flight
            if room > 0 or before:
                self._ask(stall, room, len(stalls))
            if stall.in_flight > before:
                room = 0

    def _turn_alone(self, stall: Stall) -> None:
        try:
            stall.turn_patiently()
        except Unreachable:
            if self._crew.signals.leaving:
                raise
        stall.upkeep()

    def _ask(self, stall: Stall, room: int, asked: int) -> None:
        wait_s = IDLE_WAIT_S if room > 0 else min(self._crew.settings.wait_s, BUSY_WAIT_S) / max(1, asked)
        try:
            stall.turn(wait_s=min(wait_s, self._crew.settings.wait_s), room=max(0, room))
        except (Unreachable, Untrusted) as error:
            self._rest(stall.desk.market.origin, error)
        except MarketError as error:
            stall.say_problem(error)
            self._resting[stall.desk.market.origin] = time.monotonic() + PROBLEM_PAUSE_S
        stall.upkeep()

    def _look_around(self) -> None:
        """Markets that were silent are tried again, new ones joined, and all ranked anew from time to time."""
        self._looked = time.monotonic()
        joined = {stall.desk.market.origin for stall in self.stalls}
        for origin in self._crew.settings.origins:
            if origin not in joined and self._awake(origin):
                self._try_to_join(origin)
        self._discover()
        if time.monotonic() - self._ranked_at > RANKED_S:
            self._ranked_at = time.monotonic()
            for stall in self.stalls:
                self._rank(stall)

    def _rank(self, stall: Stall) -> None:
        try:
            stall.look()
        except MarketError as error:
            self._rest(stall.desk.market.origin, error)

    def _discover(self) -> None:
        if self._discovery is None:
            return
        try:
            found = self._discovery.look()
        except ChainError as error:
            self._crew.journal.once("discovery", f"The chain does not tell of markets now: {error}")
            return
        room, candidates = max(0, MOST - len(self.stalls)), self._waiting + found
        self._waiting = candidates[room:]
        for announcement in candidates[:room]:
            self._follow(announcement, self._discovery.local)

    def _follow(self, announcement: Announcement, local: bool) -> None:
        """Joins a market that the chain announces, if it is what is announced; says why not by name."""
        event, facts = announcement.event, {"endpoint": announcement.endpoint, "chain_job": announcement.event.job}
        try:
            origin = origin_of(announcement.endpoint)
            if origin not in {stall.desk.market.origin for stall in self.stalls}:
                self._join(origin, lambda market: checked(market, event), named=local)
                self._crew.journal.say("discovered", f"Found {origin} by its job {event.job} on-chain.", **facts)
        except MarketError as error:
            self._crew.journal.say("refused_market", f"Not joined: {error}", **facts)
            self._waiting += [announcement] if isinstance(error, Unreachable) else []

    def _try_to_join(self, origin: str) -> None:
        try:
            self._join(origin, Market.facts)
        except MarketError as error:
            self._rest(origin, error)

    def _join(self, origin: str, facts: Callable[[Market], ChainFacts], named: bool = True) -> None:
        """A market that cannot be joined leaves nothing open."""
        with ExitStack() as stack:
            market = Market(origin, self._keep_trying, self._crew.signals.pause, self._crew.journal, not named)
            stack.callback(market.close)
            stall = opened(replace(self._crew, stack=stack), market, facts(market), named)
            stall.start()
            self.stalls.append(stall)
            self._crew.stack.callback(stack.pop_all().close)

    def _keep_trying(self, seconds: float) -> bool:
        if self._crew.signals.at_once:
            return False
        if self._crew.signals.leaving:
            return seconds < self._crew.settings.leave_market_s
        if self._alone:
            return not self.stalls or seconds < UPKEEP_S
        return seconds < GIVEN_UP_S

    def _rest(self, origin: str, error: MarketError) -> None:
        self._resting[origin] = time.monotonic() + REST_S
        self._crew.journal.say("resting", f"{origin} is left alone for a while: {error}", market=origin)

    def _awake(self, origin: str) -> bool:
        return self._resting.get(origin, 0.0) <= time.monotonic()
