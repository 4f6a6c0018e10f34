"""The result of one session of a worker, at its end and every minute so far: the difference of its accounts."""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Final

from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Address
from worker.journal import Journal
from worker.money.account_store import AccountStore, JobAccount, convert_to_amount

EVERY_S: Final = 60.0
HOUR_S: Final = 3600


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
    """False if the worker had to leave at once, or was stopped by an error."""


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
        redeemed=sum(convert_to_amount(account.received, account) for account in kept),
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
    journal.report("summary", text, **asdict(done))


class SoFar:
    """Reports, every minute with new earnings, the earnings since the start and their rate an hour.

    `clock` gives seconds. Earnings before the first call do not count.
    """

    def __init__(self, store: AccountStore, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._journal, self._clock = store, journal, clock
        self._before = self._said = sum_accounts(store.accounts)
        self._began = self._at = clock()

    def turn(self, money: TokenUnit) -> None:
        """Reports if EVERY_S are over and more was accepted or rejected since the last report."""
        now = self._clock()
        if now - self._at < EVERY_S:
            return
        self._at, new = now, sum_accounts(self._store.accounts)
        reported, self._said = self._said, new
        if (new.accepted, new.rejected) == (reported.accepted, reported.rejected):
            return
        accepted, earned = new.accepted - self._before.accepted, new.earned - self._before.earned
        seconds = now - self._began
        hourly = int(earned * HOUR_S / seconds)
        text = (
            f"So far: {accepted} accepted, {new.rejected - self._before.rejected} rejected, {money.text(earned)} in "
            f"{seconds / 60:.0f} min, waiting included: {money.about(hourly)} an hour."
        )
        facts = {"accepted": accepted, "earned": str(earned), "seconds": round(seconds), "hourly": str(hourly)}
        self._journal.report("so_far", text, **facts)
