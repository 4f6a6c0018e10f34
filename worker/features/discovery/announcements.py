"""Finds jobs on the chain: reads `JobOpened` events, and checks that the markets they name serve the announced jobs.

Anybody can write anything into an event, so nothing in it is trusted: the contract's code is compared, a market is
reached at public addresses only (unless the chain is a local one), and it must serve the very job that it announced.
Only tokens that the owner names count; amounts of two tokens are not compared.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import islice, zip_longest
from typing import Final

import httpx
from eth_utils.address import to_checksum_address
from web3 import Web3

from contracts.artifact import load_artifact
from contracts.deployment import market_at
from contracts.event_types import JobOpened
from contracts.events import fetch_announced_jobs
from contracts.rpc import LOCAL_CHAIN_IDS, node_errors
from contracts.transactions import chain_id
from gradmarket.market.terms import Address, JobState
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire.poll import hash_of
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.environment import is_address
from worker import Untrusted
from worker.protocol.client import MarketClient

LOOK_BACK: Final = 200_000
"""Blocks to look back without a configured first block: about a month of twelve-second blocks."""
AT_ONCE: Final = 8
"""The most markets that one search returns: announcing costs little, and asking each may take seconds."""
MOST_KNOWN: Final = 4096
"""The most announcements that are remembered; beyond, those with the smallest deposits of their token are forgotten."""
MOST_READ: Final = 64
"""The most jobs whose deposits one search reads from the chain."""
LONGEST_WAIT: Final = 64
"""The most searches until an announcement that led to no work is returned again."""
Source = tuple[str, Address, Address]
"""An endpoint, and the contract and the requester that announced it: nobody can announce in another's name."""


@dataclass(frozen=True)
class Announcement:
    """An endpoint, and the job with the largest deposit among those by which one requester announced it.

    `turns`: how often it was returned before. `due`: the number of the search from which on it is returned again.
    """

    endpoint: str
    event: JobOpened
    token: Address
    turns: int = 0
    due: int = 0

    @property
    def source(self) -> Source:
        return self.endpoint, self.event.contract, self.event.requester


class Discovery:
    """Searches each block once, from block `since`. `tokens`: the accepted ones, in this order; any if empty."""

    def __init__(self, web3: Web3, since: int | None = None, tokens: Sequence[Address] = ()) -> None:
        self._web3 = web3
        self.chain_id = chain_id(web3)
        self._next = since
        self._tokens = tokens
        self._token_of: dict[Address, Address | None] = {}
        self._candidates: dict[Source, Announcement] = {}
        self._out: set[Source] = set()
        self._searches = 0

    @property
    def local(self) -> bool:
        return self.chain_id in LOCAL_CHAIN_IDS

    @node_errors()
    def look(self, room: int = AT_ONCE) -> list[Announcement]:
        """Returns at most `room` announcements that are not out; each stays out until it is put back.

        One of each token takes turns with the others; within a token those that were returned least often come first,
        then those with the largest deposit at this block. Raises ChainError.
        """
        latest = self._web3.eth.get_block("latest")
        first = max(0, latest["number"] - LOOK_BACK) if self._next is None else self._next
        now = latest["timestamp"]
        for event in self._list_live_job_events(first, latest["number"], now):
            self._remember_announcement(event)
        self._next = latest["number"] + 1
        self._searches += 1
        self._candidates = {key: one for key, one in self._candidates.items() if one.event.expiry > now}
        self._out &= self._candidates.keys()
        found = list(islice(self._in_turns(), min(room, AT_ONCE)))
        self._out |= {announcement.source for announcement in found}
        return found

    @property
    def waits(self) -> bool:
        """Returns whether the next search would return an announcement without any new one."""
        return next(self._list_due_candidates(self._searches + 1), None) is not None

    def put_back(self, announcement: Announcement) -> None:
        """Marks it for a later search, after all that had fewer turns: it led nowhere, or to no paid work."""
        key, turns = announcement.source, announcement.turns + 1
        wait = min(LONGEST_WAIT, 2 ** min(turns - 1, 10))
        self._out.discard(key)
        if key in self._candidates:
            self._candidates[key] = replace(self._candidates[key], turns=turns, due=self._searches + wait)

    def _remember_announcement(self, event: JobOpened) -> None:
        """Remembers the event: as its source's, if its deposit is larger or the one before led nowhere."""
        token = self._find_market_token(event.contract)
        if token is None:
            return
        new = Announcement(event.endpoint, event, token)
        best = self._candidates.get(new.source)
        if best is not None and (best.turns or _compute_deposit(event) > _compute_deposit(best.event)):
            self._candidates[new.source] = replace(best, event=event)
        elif best is None:
            self._candidates[new.source] = new
            if len(self._candidates) > MOST_KNOWN:
                self._forget_the_least(token)

    def _forget_the_least(self, token: Address) -> None:
        """Forgets the smallest deposit of the token that most announcements are of: one token ousts no other.

        Turns decide between equal deposits alone: dust that was never returned ousts no market that was.
        """
        counts = Counter(one.token for one in self._candidates.values())
        crowded = max(counts, key=lambda each: (counts[each], each == token))
        waiting = [one for key, one in self._candidates.items() if one.token == crowded and key not in self._out]
        if waiting:
            del self._candidates[min(waiting, key=lambda one: (_compute_deposit(one.event), -one.turns)).source]

    def _in_turns(self) -> Iterator[Announcement]:
        """Yields the announcements that are due, one token after the other in turn."""
        due = list(self._list_due_candidates(self._searches))
        tokens = list(self._tokens) or list(dict.fromkeys(one.token for one in due))
        lines = [self._order_by_deposit([one for one in due if one.token == token]) for token in tokens]
        return (one for row in zip_longest(*lines) for one in row if one is not None)

    def _list_due_candidates(self, search: int) -> Iterator[Announcement]:
        return (one for key, one in self._candidates.items() if key not in self._out and one.due <= search)

    def _order_by_deposit(self, waiting: Sequence[Announcement]) -> Iterator[Announcement]:
        """Yields one token's announcements, fewest turns first, then by the present deposit, as far as it is read.

        An event has the original deposit; a requester may have taken it back since and announced others with it.
        """
        heap = [(one.turns, -_compute_deposit(one.event), number, False) for number, one in enumerate(waiting)]
        heapify(heap)
        reads = MOST_READ
        while heap:
            turns, _, number, read = heappop(heap)
            if read or not reads:
                yield waiting[number]
                continue
            reads -= 1
            if left := self._fetch_deposit_left(waiting[number].event):
                heappush(heap, (turns, -left, number, True))

    def _fetch_deposit_left(self, event: JobOpened) -> int:
        """Returns the present deposit for the event's job, in the token's smallest unit."""
        with node_errors():
            job = market_at(self._web3, event.contract).functions.job(event.job).call()
        return int(job.deposited) * event.unit

    def _list_live_job_events(self, first: int, last: int, now: int) -> Iterator[JobOpened]:
        for event in fetch_announced_jobs(self._web3, first, last):
            if event.deposited and event.expiry > now:
                yield event

    def _find_market_token(self, contract: Address) -> Address | None:
        """Returns the token of a market contract of any deployer; None for other code and other tokens."""
        if contract not in self._token_of:
            self._token_of[contract] = self._read_token(contract)
        return self._token_of[contract]

    def _read_token(self, contract: Address) -> Address | None:
        with node_errors():
            if not load_artifact("GradMarket").matches(bytes(self._web3.eth.get_code(to_checksum_address(contract)))):
                return None
            token = Address(market_at(self._web3, contract).functions.token().call())
        return token if token in self._tokens or not self._tokens else None


def _compute_deposit(event: JobOpened) -> int:
    return event.deposited * event.unit


def check_announcement_matches(event: JobOpened, facts: ChainFacts, jobs: list[ListedJob]) -> None:
    """Raises Untrusted and names the difference if the market is not the one that the chain announces."""
    listed = next((job for job in jobs if job.chain_job == event.job and job.state is JobState.RUNNING), None)
    publication = listed.publication if listed else None
    checks = (
        (facts.contract != event.contract, f"it pays by the contract {facts.contract}, not {event.contract}"),
        (facts.signer != event.signer, f"it signs as {facts.signer}, the job's signer is {event.signer}"),
        (publication is None, f"it runs no job {event.job}"),
        (
            publication is not None and hash_of(publication.digest) != event.spec_digest,
            f"job {event.job} has another specification there than on-chain",
        ),
    )
    why = next((fault for wrong, fault in checks if wrong), None)
    if why is not None:
        raise Untrusted(f"{event.endpoint} is not what job {event.job} announces: {why}")


def fetch_checked_facts(market: MarketClient, event: JobOpened) -> ChainFacts:
    """Returns the announced market's chain facts. Raises Untrusted, or MarketError if the market does not answer."""
    facts = market.facts()
    check_announcement_matches(event, facts, market.jobs())
    return facts


def origin_of(endpoint: str) -> str:
    """Returns the market's address from an event. Raises Untrusted if it is not an http or https URL."""
    try:
        url = httpx.URL(endpoint)
        host = url.host  # decodes it
    except (httpx.InvalidURL, TypeError, ValueError) as error:
        raise Untrusted(f"{endpoint[:200]!r} is no address") from error
    if not is_address(endpoint) or not host or url.userinfo:
        raise Untrusted(f"{endpoint[:200]!r} is not the address of a market")
    return str(url).rstrip("/")
