"""The chain as this worker's own RPC node reports it: whether it is the expected chain, and its reservations.

Only the worker's own release or the end of claims lowers a reservation. So a sufficient one is not read again for
FRESH_S seconds. Only the chain's time ends claims: this machine's clock may be days off.
"""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import httpx

from contracts.deployment import Deployment
from contracts.event_types import JobOpened
from contracts.events import opened_job
from contracts.ledger import Ledger
from contracts.rpc import LOCAL_CHAIN_IDS, connect_to_node
from gradmarket.market.money import LONGEST_SYMBOL, MOST_DECIMALS
from gradmarket.market.terms import Address, Amount, Units
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.chain_errors import ForeignChain
from gradmarket.network.environment import is_loopback
from worker import Untrusted
from worker.protocol.policy import OnChain, Vest

LONGEST_WINDOW_S: Final = 90 * 86_400
"""Upper limit of a contract's minimum window. A stake may stay locked for three windows."""
FRESH_S: Final = 60.0
PATIENCE_S: Final = 3.0
"""Seconds to wait for a node that lags behind the market to show a reservation."""


def choose_rpc(own: str | None, facts: ChainFacts, market: str | None = None) -> str:
    """Returns the node to trust: the worker's own, or the market's where both are on this machine and its chain local.

    `market` is the present source of these facts; None where they were chosen and stored before. Raises Untrusted for
    any other: a market that names a local chain and a node could invent pay, and direct requests into this machine's
    network.
    """
    if own is not None:
        return own
    here = facts.rpc is not None and on_this_machine(facts.rpc) and (market is None or on_this_machine(market))
    if facts.rpc is not None and here and facts.chain_id in LOCAL_CHAIN_IDS:
        return facts.rpc
    served = market is not None and market.startswith(("http://", "https://"))  # an archive's folder has no node
    trial = f"; for worthless test money {market}/chain will do" if served and facts.chain_id in LOCAL_CHAIN_IDS else ""
    told = f"the market pays on chain {facts.chain_id}: name a node of your own for it (--rpc){trial}"
    raise Untrusted(told, "name a node of that chain with --rpc")


def on_this_machine(url: str) -> bool:
    """Returns whether a URL names a loopback address, or localhost."""
    try:
        return is_loopback(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False


def ledger_of(own: str | None, facts: ChainFacts, market: str | None = None) -> Ledger:
    """Returns the market's deployment as seen by the trusted node; raises Untrusted like `choose_rpc` and
    `connect_to_deployment`."""
    return connect_to_deployment(choose_rpc(own, facts, market), facts)


def connect_to_deployment(url: str, facts: ChainFacts) -> Ledger:
    """Returns the market's deployment on the node at `url`; raises Untrusted with the difference if it is another."""
    check_facts(facts)
    deployment = Deployment(facts.chain_id, facts.genesis, facts.contract, facts.token, facts.instance, facts.block)
    ledger = Ledger(connect_to_node(url), deployment)
    try:
        ledger.verify()
    except ForeignChain as error:
        raise Untrusted(f"{url}: {error}") from error
    if (decimals := ledger.decimals()) != facts.decimals:
        raise Untrusted(f"the market says that its token has {facts.decimals} decimals, and the chain {decimals}")
    if not 1 <= (window := ledger.min_window()) <= LONGEST_WINDOW_S:
        raise Untrusted(f"the contract's shortest window is {window} s: an honest deployment has a longer one")
    return ledger


def check_facts(facts: ChainFacts) -> None:
    """Raises Untrusted for a symbol that could control a terminal, or decimals or a unit that break the arithmetic."""
    if not 1 <= len(facts.symbol) <= LONGEST_SYMBOL or not facts.symbol.isprintable():
        raise Untrusted(f"the market's token has a name that cannot be shown: {facts.symbol[:LONGEST_SYMBOL]!a}")
    if not 0 <= facts.decimals <= MOST_DECIMALS:
        raise Untrusted(f"the market's token has {facts.decimals:.3g} decimals: at most {MOST_DECIMALS} make sense")
    if not re.fullmatch(r"[1-9][0-9]{0,38}", facts.unit):
        raise Untrusted(f"the market counts in units of {facts.unit[:40]!a}: that is not a positive amount")


class ChainView:
    """The worker's readings of the contract, cached for FRESH_S seconds."""

    def __init__(
        self,
        ledger: Ledger,
        worker: Address,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.ledger = ledger
        self._worker = worker
        self._clock = clock
        self._pause = pause
        self._opened: dict[int, JobOpened] = {}
        self._seen: dict[int, tuple[float, OnChain]] = {}
        self._told: tuple[float, float] | None = None

    def wait_for_reservation(self, chain_job: int, units: Units) -> OnChain:
        """Returns the job and this worker's account; waits up to PATIENCE_S until `units` are reserved.

        Raises ChainError if the node does not answer.
        """
        since = self._clock()
        at, seen = self._seen.get(chain_job, (0.0, None))
        if seen is None or since - at > FRESH_S or seen.reserved < units:
            seen = self.look(chain_job)
        seen = replace(seen, now=self.now())
        while seen.reserved < units and self._clock() - since < PATIENCE_S:
            self._pause(0.2)
            seen = self.look(chain_job)
        return seen

    def look(self, chain_job: int) -> OnChain:
        """Reads account and, once, job from the chain and caches them: a job's unit and end of claims never change."""
        opened, before = self.opened(chain_job), self._seen.get(chain_job)
        job = self.ledger.job(chain_job) if before is None else before[1]
        account = self.ledger.account(chain_job, self._worker)
        now = self.now()
        signers = frozenset({opened.signer})
        terms = (job.unit, account.reserved, float(job.claim_until), now, job.decision_window)
        vest = Vest(opened.vest, opened.vest_window, opened.vest_quorum)
        seen = OnChain(signers, opened.spec_digest, *terms, vest)
        self._seen[chain_job] = (self._clock(), seen)
        return seen

    def now(self) -> float:
        """Returns the chain's time in Unix seconds: the next block's when last read, plus the seconds since.

        It is read again after FRESH_S seconds. Raises ChainError.
        """
        if self._told is None or self._clock() - self._told[0] > FRESH_S:
            self._told = self._clock(), float(self.ledger.next_time())
        at, read = self._told
        return read + self._clock() - at

    def forget(self, chain_job: int) -> None:
        """Drops the cached account after a release, which changes the reservation."""
        self._seen.pop(chain_job, None)

    def unit(self, chain_job: int) -> Amount:
        _, seen = self._seen.get(chain_job, (0.0, None))
        return seen.unit if seen is not None else self.look(chain_job).unit

    def claim_until(self, chain_job: int) -> float:
        """Returns when the job's claims end, in Unix seconds; this never changes."""
        _, seen = self._seen.get(chain_job, (0.0, None))
        return seen.claim_until if seen is not None else self.look(chain_job).claim_until

    def opened(self, chain_job: int) -> JobOpened:
        """Returns the job's terms from its JobOpened event. Raises ChainError."""
        if chain_job not in self._opened:
            self._opened[chain_job] = opened_job(self.ledger, chain_job)
        return self._opened[chain_job]
