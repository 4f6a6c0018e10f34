"""How a worker stands in every job of its book: by its own records, and by the chain where a node tells it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gradmarket.contracts import stakes
from gradmarket.market.errors import MarketError
from gradmarket.market.terms import Address, Hash
from gradmarket.worker import chains, records
from gradmarket.worker.chain import choose_rpc, join
from gradmarket.worker.records import Record
from gradmarket.worker.report import Money
from gradmarket.worker.settings import Settings
from gradmarket.worker.vouchers import Account, Book, value


@dataclass(frozen=True)
class Refusal:
    """A rejection, and where its evidence is published."""

    replica: str
    task: str
    reason: str
    evidence: str


@dataclass(frozen=True)
class Standing:
    """Amounts are decimal strings in the smallest unit; what only the chain knows is None where it is silent."""

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
    rejections: tuple[Refusal, ...]

    def text(self, money: Money) -> str:
        names = ("earned", "vouchered", "settled", "redeemed", "reserved", "at_stake")
        told = {name: asdict(self)[name] for name in names}
        sums = ", ".join(f"{name.replace('_', ' ')} {_text(money, units)}" for name, units in told.items())
        head = f"{self.job} at {self.market or 'an unknown market'}, job {self.chain_job} of chain {self.chain_id}"
        lines = [f"{head}: {self.accepted} accepted, {self.rejected} rejected", f"  {sums}"]
        lines += [f"  the chain does not tell: {self.trouble}"] if self.trouble else []
        lines += [f"  rejected {each.replica}: {each.reason} ({each.evidence})" for each in self.rejections]
        return "\n".join(lines)


def _text(money: Money, amount: str | None) -> str:
    return "unknown" if amount is None else money.text(int(amount))


def standings(settings: Settings, me: Address) -> Iterator[tuple[Standing, Money]]:
    for account in Book(settings.data / "book.json").accounts:
        kept = list(records.read(settings.data, account.domain, account.chain_job))
        yield _standing(settings, me, account, kept)


def _standing(settings: Settings, me: Address, account: Account, kept: list[Record]) -> tuple[Standing, Money]:
    onchain: dict[str, Any] = {"settled": None, "reserved": None, "at_stake": None}
    money, trouble = Money("of the smallest unit", 0), ""
    try:
        facts = chains.find(settings.data, Hash(account.instance))
        money = Money(facts.symbol, facts.decimals)
        ledger = join(choose_rpc(settings.node, facts), facts)
        found = ledger.account(account.chain_job, me)
        onchain["settled"], onchain["reserved"] = (
            str(value(found.settled, account)),
            str(value(found.reserved, account)),
        )
        onchain["at_stake"] = str(stakes.exposure(ledger, account.chain_job, me).at_risk)
    except MarketError as error:
        trouble = str(error)
    standing = Standing(
        job=account.job,
        market=kept[-1].market if kept else None,
        chain_id=account.chain_id,
        chain_job=account.chain_job,
        accepted=account.accepted,
        rejected=account.rejected,
        earned=str(value(account.earned, account)),
        vouchered=str(value(account.vouchered, account)),
        redeemed=str(value(account.redeemed, account)),
        trouble=trouble,
        rejections=tuple(_refusal(record) for record in kept if record.rejected),
        **onchain,
    )
    return standing, money


def _refusal(record: Record) -> Refusal:
    lease = record.lease
    evidence = f"{record.market}/v1/jobs/{lease.job}/tasks/{lease.task}"
    return Refusal(lease.replica, lease.task, record.verdict.reason, evidence)
