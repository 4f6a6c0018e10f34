"""Markets that announce their jobs on the chain, beside those that the owner names: joins them, and leaves those that
pay nothing where others wait.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from contracts.rpc import connect_to_node
from gradmarket.market.errors import Refused
from gradmarket.network.chain_errors import ChainError
from worker.feature import WorkerFeature
from worker.features.discovery.announcements import Announcement, Discovery, fetch_checked_facts, origin_of
from worker.markets.leasing import UNFIT
from worker.markets.market_session import MarketSession, Shared
from worker.markets.scheduler import MarketSource, Scheduler

MOST: Final = 16
"""The most markets at once; beyond them none is discovered until one makes room."""
ROOM_S: Final = 600.0
"""Seconds without pay and without work under way after which a discovered market makes room for another."""


@dataclass
class Place:
    """A discovered market's, by `announcement`. `earned`: its total pay at its last payment, at `paid_at`."""

    announcement: Announcement
    session: MarketSession
    stack: ExitStack
    earned: int
    paid_at: float

    def idle(self, now: float) -> bool:
        if (earned := self.session.earned) > self.earned:
            self.earned, self.paid_at = earned, now
        return now - self.paid_at > ROOM_S and not self.session.works


class AnnouncedMarkets(MarketSource):
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._found: list[Place] = []

    @cached_property
    def _discovery(self) -> Discovery:
        settings = self._shared.settings
        if settings.node is None:
            raise Refused("to discover markets, name a node of your own (--rpc)")
        discovery = Discovery(connect_to_node(settings.node), settings.since, settings.tokens)
        if not (discovery.local or settings.tokens):
            raise Refused(
                f"on chain {discovery.chain_id} anybody may announce a market that pays in a token of its own",
                "name the tokens that you want to be paid in (--token ADDRESS)",
            )
        return discovery

    def join_markets(self, scheduler: Scheduler) -> None:
        discovery = self._discovery
        try:
            room = MOST - len(scheduler.sessions)
            if room <= 0 and discovery.waits:
                room = self._make_room(scheduler)
            announcements = discovery.look(max(0, room))
        except ChainError as error:
            self._shared.journal.once("discovery", f"The chain cannot be asked for markets now: {error}")
            return
        for announcement in announcements:
            self._join_announced(scheduler, announcement)

    def _make_room(self, scheduler: Scheduler) -> int:
        """Leaves the discovered market longest without a payment; returns the number of free places."""
        now = time.monotonic()
        idle = [place for place in self._found if place.idle(now)]
        if not idle:
            return 0
        place = min(idle, key=lambda place: place.paid_at)
        scheduler.leave_market(place.session, place.stack)
        self._found.remove(place)
        self._discovery.put_back(place.announcement)
        text = f"{place.announcement.endpoint} paid nothing for a while and makes room for another market."
        self._shared.journal.report("made_room", text, endpoint=place.announcement.endpoint)
        return 1

    def _join_announced(self, scheduler: Scheduler, announcement: Announcement) -> None:
        """Joins a market that the chain announces if it matches the announcement; logs the reason otherwise."""
        event, facts = announcement.event, {"endpoint": announcement.endpoint, "chain_job": announcement.event.job}
        try:
            origin = origin_of(announcement.endpoint)
            if origin in {session.context.market.origin for session in scheduler.sessions}:
                return
            session, stack = scheduler.join(
                origin, lambda market: fetch_checked_facts(market, event), named=self._discovery.local
            )
            self._found.append(Place(announcement, session, stack, session.earned, time.monotonic()))
            self._shared.journal.report("discovered", f"Found {origin} by its job {event.job} on-chain.", **facts)
        except UNFIT as error:
            self._shared.journal.once("refused_market", f"Not joined: {error}", **facts)
            self._discovery.put_back(announcement)


class DiscoveryFeature(WorkerFeature):
    name = "discovery"
    serves = frozenset({"discover"})

    def market_source(self, shared: Shared) -> AnnouncedMarkets | None:
        return AnnouncedMarkets(shared) if shared.settings.discover else None
