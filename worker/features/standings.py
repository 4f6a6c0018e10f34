"""A worker's standing in every job of its accounts: from its own records, and from the chain if a node answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from contracts import stakes
from gradmarket.market.errors import MarketError
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Address, Hash
from worker.feature import WalletLine, WorkerFeature
from worker.money import known_chains
from worker.money.account_store import convert_to_amount, open_account_store
from worker.money.chain_view import ledger_of
from worker.protocol import records
from worker.settings import WorkerSettings


@dataclass(frozen=True)
class Rejection:
    """A rejection, and the URL at which its evidence is published."""

    replica: str
    task: str
    reason: str
    evidence: str


@dataclass(frozen=True)
class JobStanding:
    """Amounts: decimal strings in the smallest unit; None where only the chain knows them and does not answer."""

    job: str
    market: str | None
    chain_id: int
    chain_job: int
    accepted: int
    rejected: int
    earned: str
    vouchered: str
    redeemed: str
    settled: str | None
    reserved: str | None
    at_stake: str | None
    trouble: str
    rejections: tuple[Rejection, ...]

    def text(self, money: TokenUnit) -> str:
        names = ("earned", "vouchered", "settled", "redeemed", "reserved", "at_stake")
        amounts = {name: asdict(self)[name] for name in names}
        texts = {name: "unknown" if units is None else money.text(int(units)) for name, units in amounts.items()}
        sums = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in texts.items())
        head = f"{self.job} at {self.market or 'an unknown market'}, job {self.chain_job} of chain {self.chain_id}"
        lines = [f"{head}: {self.accepted} accepted, {self.rejected} rejected", f"  {sums}"]
        lines += [f"  the chain does not answer: {self.trouble}"] if self.trouble else []
        lines += [f"  rejected {one.replica}: {one.reason} ({one.evidence})" for one in self.rejections]
        return "\n".join(lines)


def list_standings(settings: WorkerSettings, me: Address) -> Iterator[tuple[JobStanding, TokenUnit]]:
    for account in open_account_store(settings.data, me).accounts:
        kept = list(records.load_records(settings.data, account.domain, account.chain_job))
        onchain: dict[str, Any] = {"settled": None, "reserved": None, "at_stake": None}
        money, trouble = TokenUnit("of the smallest unit", 0), ""
        try:
            facts = known_chains.load_chain_facts(settings.data, Hash(account.instance))
            money = TokenUnit.of(facts)
            ledger = ledger_of(settings.node, facts)
            onchain_account = ledger.account(account.chain_job, me)
            onchain["settled"], onchain["reserved"] = (
                str(convert_to_amount(onchain_account.settled, account)),
                str(convert_to_amount(onchain_account.reserved, account)),
            )
            onchain["at_stake"] = str(stakes.exposure(ledger, account.chain_job, me).at_risk)
        except MarketError as error:
            trouble = str(error)
        rejections = (
            Rejection(
                record.lease.replica,
                record.lease.task,
                record.verdict.reason,
                f"{record.market}/v1/jobs/{record.lease.job}/tasks/{record.lease.task}",
            )
            for record in kept
            if record.rejected
        )
        standing = JobStanding(
            job=account.job,
            market=kept[-1].market if kept else None,
            chain_id=account.chain_id,
            chain_job=account.chain_job,
            accepted=account.accepted,
            rejected=account.rejected,
            earned=str(convert_to_amount(account.earned, account)),
            vouchered=str(convert_to_amount(account.vouchered, account)),
            redeemed=str(convert_to_amount(account.received, account)),
            trouble=trouble,
            rejections=tuple(rejections),
            **onchain,
        )
        yield (standing, money)


class StandingsFeature(WorkerFeature):
    name = "standings"

    def list_wallet_lines(
        self,
        settings: WorkerSettings,
        me: Address,
        warn: Callable[[str], None],  # noqa: ARG002
    ) -> Mapping[str, Sequence[WalletLine]]:
        return {"jobs": [WalletLine(job.text(money), asdict(job)) for job, money in list_standings(settings, me)]}
