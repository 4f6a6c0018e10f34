"""Vesting: the locked part of the wallet's pay, and the end of its lock."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from gradmarket.market.errors import MarketError
from gradmarket.market.features.vesting import PayLock
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Address, Units
from worker.feature import WalletLine, WorkerFeature
from worker.money import known_chains
from worker.money.account_store import open_account_store
from worker.money.chain_view import ledger_of
from worker.settings import WorkerSettings


@dataclass(frozen=True)
class LockedPay:
    """Locked pay of one job: `amount` in the smallest unit; `until` in Unix seconds, past where a ruling is due."""

    chain_id: int
    job: str
    chain_job: int
    amount: str
    until: int
    accused: bool
    money: str

    def text(self) -> str:
        when = f"until {datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M} UTC"
        return f"locked: {self.money} of {self.job} {'until its validators rule' if self.accused else when}"


def list_locked_pay(settings: WorkerSettings, me: Address, warn: Callable[[str], None]) -> Iterator[LockedPay]:
    """Yields the pay of every job with an open account that the contract credits and would not pay now.

    `warn` gets the chains that do not answer.
    """
    accounts = open_account_store(settings.data, me).accounts
    for facts in known_chains.list_known_chains(settings.data):
        mine = [one for one in accounts if one.domain == facts.domain and not one.closed]
        if not mine:
            continue
        found = list[LockedPay]()
        try:
            ledger, money = ledger_of(settings.node, facts), TokenUnit.of(facts)
            for one in mine:
                job, onchain = ledger.job(one.chain_job), ledger.account(one.chain_job, me)
                locked = Units(onchain.unpaid - ledger.due(one.chain_job, me)) if onchain.unpaid else Units(0)
                if locked:
                    lock = PayLock(onchain.unpaid, onchain.credited_at, job.vest, job.vest_window)
                    amount = locked * job.unit
                    over = not lock.compute_locked(ledger.next_time())
                    where = (one.chain_id, str(one.job), one.chain_job)
                    found.append(LockedPay(*where, str(amount), lock.until, over, money.text(amount)))
        except MarketError as error:
            warn(f"locked pay on chain {facts.chain_id} is not known: {error}")
            continue
        yield from found


class LockedPayFeature(WorkerFeature):
    name = "vesting"

    def list_wallet_lines(
        self, settings: WorkerSettings, me: Address, warn: Callable[[str], None]
    ) -> Mapping[str, Sequence[WalletLine]]:
        return {"locked": [WalletLine(one.text(), asdict(one)) for one in list_locked_pay(settings, me, warn)]}
