"""The facts on the chain and at the markets about this worker: unredeemed pay, stakes, accusations, its record."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from contracts import stakes
from contracts.ledger import Ledger
from contracts.rpc import LOCAL_CHAIN_IDS
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.client.transport import refuse_retry
from gradmarket.market.errors import MarketError
from gradmarket.market.terms import Hash, Units
from worker.features.owner_page.own_facts import OwnFolder
from worker.features.stakes.cases import WalletCase, list_open_accusations
from worker.features.stakes.stake import Risk, list_staked_risks
from worker.money import known_chains
from worker.money.account_store import JobAccount, convert_to_amount
from worker.money.chain_view import ledger_of
from worker.protocol.client import MarketClient
from worker.settings import WorkerSettings

LOOK_S: Final = 15.0
"""Seconds between two looks at chain and markets."""


@dataclass(frozen=True)
class Unredeemed:
    """The remaining debt of one job on the chain, in the token's smallest unit. `until`: the end of its claims, in Unix
    seconds; None where the chain does not show it."""

    job: str
    chain_id: int
    chain_job: int
    amount: str
    text: str
    until: float | None


@dataclass(frozen=True)
class AuditRecord:
    """`standing`: the least share of honest answers that the passed audits of this class show, from 0 to 1."""

    determinism_class: str
    standing: float
    passed: int
    failed: int


@dataclass(frozen=True)
class MarketRecord:
    """A market's record of this worker; `trouble`: why it is missing."""

    market: str
    trouble: str = ""
    barred: bool = False
    suspended: tuple[str, ...] = ()
    """Jobs that give it no work for a while, because it owed answers there."""
    records: tuple[AuditRecord, ...] = ()


@dataclass(frozen=True)
class Elsewhere:
    """`looked_at`: Unix seconds, None before the first look is over; `troubles`: why some services do not answer."""

    looked_at: float | None = None
    unredeemed: tuple[Unredeemed, ...] = ()
    stakes: tuple[Risk, ...] = ()
    accusations: tuple[WalletCase, ...] = ()
    markets: tuple[MarketRecord, ...] = ()
    troubles: tuple[str, ...] = ()


@dataclass
class Outlook:
    """Queries chain and markets, on request in a thread of its own; `newest` is the latest result."""

    settings: WorkerSettings
    own: OwnFolder
    newest: Elsewhere = field(default_factory=Elsewhere)
    _ledgers: dict[Hash, Ledger] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator["Outlook"]:
        """Looks every LOOK_S seconds in a thread until the `with` block ends."""
        over = threading.Event()

        def run() -> None:
            while not over.is_set():
                try:
                    self.look()
                except Exception as error:  # noqa: BLE001 - the owner sees it, and the next look may succeed
                    self.newest = replace(self.newest, troubles=(f"looking failed: {error!r}"[:300],))
                over.wait(LOOK_S)

        threading.Thread(target=run, name="outlook", daemon=True).start()
        try:
            yield self
        finally:
            over.set()

    def look(self) -> Elsewhere:
        troubles: list[str] = []
        exposed = self._has_stake_at_risk(troubles)
        me, warn = self.own.address, troubles.append
        self.newest = Elsewhere(
            looked_at=time.time(),
            unredeemed=tuple(filter(None, (self._find_unredeemed(account, troubles) for account in self.own.accounts))),
            stakes=tuple(list_staked_risks(self.settings, me, warn)) if exposed else (),
            accusations=tuple(list_open_accusations(self.settings, me, warn)) if exposed else (),
            markets=tuple(
                self._fetch_market_record(origin, named) for origin, named in self._list_market_origins().items()
            ),
            troubles=tuple(dict.fromkeys(troubles)),
        )
        return self.newest

    def _has_stake_at_risk(self, troubles: list[str]) -> bool:
        """Returns whether this wallet has anything at risk; if not, no events need be searched for cases."""
        exposed = False
        for facts in known_chains.list_known_chains(self.settings.data):
            try:
                exposed |= stakes.staker(self._open_ledger(facts.instance), self.own.address).exposed > 0
            except MarketError as error:
                troubles.append(f"chain {facts.chain_id} does not answer: {error}")
        return exposed

    def _find_unredeemed(self, account: JobAccount, troubles: list[str]) -> Unredeemed | None:
        owed, until = account.redeemable, None
        try:
            ledger = self._open_ledger(Hash(account.instance))
            onchain = ledger.account(account.chain_job, self.own.address)
            paid = max(account.redeemed, onchain.withdrawn)
            owed = Units(max(0, max(account.vouchered - account.lost, onchain.credited) - paid))
            until = float(ledger.job(account.chain_job).claim_until) if owed else None
        except MarketError as error:
            troubles.append(f"chain {account.chain_id} does not answer: {error}")
        amount = convert_to_amount(owed, account)
        text = self.own.money(account).text(amount)
        return Unredeemed(account.job, account.chain_id, account.chain_job, str(amount), text, until) if owed else None

    def _open_ledger(self, instance: Hash) -> Ledger:
        if instance not in self._ledgers:
            facts = known_chains.load_chain_facts(self.settings.data, instance)
            self._ledgers[instance] = ledger_of(self.settings.node, facts)
        return self._ledgers[instance]

    def _list_market_origins(self) -> dict[str, bool]:
        """Returns the markets, and whether the owner named each; one that is not named may not be in the own network,
        except beside a local chain."""
        named = dict.fromkeys(self.settings.origins, True)
        paid = {origin: chain in LOCAL_CHAIN_IDS for origin, chain in self.own.markets().items()}
        if paid and not {"market", "markets"} & self.settings.model_fields_set:
            return paid
        return {**paid, **named}

    def _fetch_market_record(self, origin: str, named: bool) -> MarketRecord:
        market = MarketClient(origin, refuse_retry, public_only=not named)
        try:
            view = market.worker(self.own.address)
        except ServiceProblem as refused:
            return MarketRecord(origin, "it has never seen this worker" if refused.status == 404 else str(refused))
        except MarketError as error:
            return MarketRecord(origin, str(error))
        finally:
            market.close()
        records = (AuditRecord(one.determinism_class, one.standing, one.passed, one.failed) for one in view.reputation)
        suspended = tuple(one.job for one in view.strikes if one.suspended_until)
        return MarketRecord(origin, barred=view.barred, suspended=suspended, records=tuple(records))
