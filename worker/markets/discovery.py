"""Finds jobs on the chain: reads `JobOpened` events, and checks that the markets they name serve the announced jobs.

Anybody can write anything into an event, so nothing in it is trusted: the contract's code is compared, a market is
reached at public addresses only (unless the chain is a local one), and it must serve the very job that it announced.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import httpx
from eth_utils.address import to_checksum_address
from web3 import Web3

from gradmarket.contracts.artifact import load
from gradmarket.contracts.event_types import JobOpened
from gradmarket.contracts.events import announced
from gradmarket.contracts.rpc import LOCAL_CHAIN_IDS, node_errors
from gradmarket.contracts.transactions import chain_id
from gradmarket.market.terms import Address, JobState
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire import hash_of
from gradmarket.market.wire_sign_in import ChainFacts
from gradmarket.worker.problems import Untrusted
from gradmarket.worker.protocol.client import MarketClient

LOOK_BACK: Final = 200_000
"""Blocks to look back where no first block is set: about a month of twelve-second blocks."""
AT_ONCE: Final = 8
"""Markets that one search returns at most, those with the largest deposits: announcing costs little."""


@dataclass(frozen=True)
class Announcement:
    """An endpoint, and the job with the largest deposit among those that it announced."""

    endpoint: str
    event: JobOpened


class Discovery:
    """Searches each block once; `since` is the first block."""

    def __init__(self, web3: Web3, since: int | None = None) -> None:
        self._web3 = web3
        self.chain_id = chain_id(web3)
        self._next = since
        self._sound: dict[Address, bool] = {}
        self._known: set[str] = set()
        self._candidates: dict[str, JobOpened] = {}

    @property
    def local(self) -> bool:
        return self.chain_id in LOCAL_CHAIN_IDS

    def look(self) -> list[Announcement]:
        """Returns markets not returned before, the largest deposit first. Raises ChainError."""
        with node_errors():
            latest = self._web3.eth.get_block("latest")
        first = max(0, latest["number"] - LOOK_BACK) if self._next is None else self._next
        now = latest["timestamp"]
        for event in self._live(first, latest["number"], now):
            self._consider(event)
        self._next = latest["number"] + 1
        live = [Announcement(endpoint, event) for endpoint, event in self._candidates.items() if event.expiry > now]
        ranked = sorted(live, key=lambda announcement: -_deposit(announcement.event))
        self._candidates = {announcement.endpoint: announcement.event for announcement in ranked[AT_ONCE:]}
        self._known |= {announcement.endpoint for announcement in ranked[:AT_ONCE]}
        return ranked[:AT_ONCE]

    def _consider(self, event: JobOpened) -> None:
        """Remembers the event as a candidate; candidates that one search does not return are left for the next."""
        best = self._candidates.get(event.endpoint)
        if event.endpoint not in self._known and (best is None or _deposit(event) > _deposit(best)):
            self._candidates[event.endpoint] = event

    def _live(self, first: int, last: int, now: int) -> Iterator[JobOpened]:
        for event in announced(self._web3, first, last):
            if event.deposited and event.expiry > now and self._is_ours(event.contract):
                yield event

    def _is_ours(self, contract: Address) -> bool:
        """Returns whether the code at the address is the market contract's, whoever deployed it."""
        if contract not in self._sound:
            with node_errors():
                code = bytes(self._web3.eth.get_code(to_checksum_address(contract)))
            self._sound[contract] = load("GradMarket").matches(code)
        return self._sound[contract]


def _deposit(event: JobOpened) -> int:
    return event.deposited * event.unit


def agree(event: JobOpened, facts: ChainFacts, jobs: list[ListedJob]) -> None:
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


def checked(market: MarketClient, event: JobOpened) -> ChainFacts:
    """Returns the announced market's chain facts. Raises Untrusted, or MarketError if the market does not answer."""
    facts = market.facts()
    agree(event, facts, market.jobs())
    return facts


def origin_of(endpoint: str) -> str:
    """Returns the market's address from an event. Raises Untrusted if it is not an http or https URL."""
    try:
        url = httpx.URL(endpoint)
    except (httpx.InvalidURL, TypeError) as error:
        raise Untrusted(f"{endpoint[:200]!r} is no address") from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise Untrusted(f"{endpoint[:200]!r} is not the address of a market")
    return str(url).rstrip("/")
