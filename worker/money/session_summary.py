"""What one session of a worker brought: the difference of its accounts, in words."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Address
from worker.journal import Journal
from worker.money.account_store import JobAccount, convert_to_amount


@dataclass(frozen=True)
class Summary:
    """The result of one session. Amounts are decimal strings in the token's smallest unit."""

    address: str
    payout: str
    accepted: int
    rejected: int
    earned: str
    redeemed: str
    unpaid: int
    accused: int
    """Accusations against this wallet that are not closed."""
    finished: bool
    """False if the worker was told to leave at once, or was stopped by an error."""


@dataclass(frozen=True)
class Totals:
    accepted: int
    rejected: int
    earned: int
    redeemed: int
    unpaid: int


def sum_accounts(accounts: Iterable[JobAccount]) -> Totals:
    """Returns the sums over the jobs in the accounts."""
    kept = list(accounts)
    return Totals(
        accepted=sum(account.accepted for account in kept),
        rejected=sum(account.rejected for account in kept),
        earned=sum(convert_to_amount(account.earned, account) for account in kept),
        redeemed=sum(convert_to_amount(account.redeemed, account) for account in kept),
        unpaid=sum(account.unpaid for account in kept),
    )


def build_session_summary(
    address: Address, payout: Address, before: Totals, after: Totals, accused: int, finished: bool
) -> Summary:
    return Summary(
        address=address,
        payout=payout,
        accepted=after.accepted - before.accepted,
        rejected=after.rejected - before.rejected,
        earned=str(after.earned - before.earned),
        redeemed=str(after.redeemed - before.redeemed),
        unpaid=after.unpaid,
        accused=accused,
        finished=finished,
    )


def log_session_summary(journal: Journal, done: Summary, money: TokenUnit) -> None:
    """Logs the result of a session."""
    earned, redeemed = money.text(int(done.earned)), money.text(int(done.redeemed))
    text = f"accepted {done.accepted}, rejected {done.rejected}, earned {earned}, redeemed {redeemed}"
    if done.unpaid:
        text += f", {done.unpaid} not paid yet"
    if done.accused:
        text += f". ACCUSED in {done.accused} cases, which are decided on the chain: gradmarket wallet case list"
    journal.say("summary", text, **asdict(done))
