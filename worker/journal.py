"""The worker's log for its owner: sentences, or one JSON object per line."""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from gradmarket.market.terms import Address, Amount
from gradmarket.worker.account_store import JobAccount, value


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


def totals(accounts: Iterable[JobAccount]) -> Totals:
    """Returns the sums over the jobs in the accounts."""
    kept = list(accounts)
    return Totals(
        accepted=sum(account.accepted for account in kept),
        rejected=sum(account.rejected for account in kept),
        earned=sum(value(account.earned, account) for account in kept),
        redeemed=sum(value(account.redeemed, account) for account in kept),
        unpaid=sum(account.unpaid for account in kept),
    )


def summary(address: Address, payout: Address, before: Totals, after: Totals, accused: int, finished: bool) -> Summary:
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


@dataclass(frozen=True)
class Money:
    """How amounts of the token are printed."""

    symbol: str
    decimals: int

    def text(self, amount: Amount | int) -> str:
        whole, rest = divmod(amount, 10**self.decimals)
        fraction = str(rest).rjust(self.decimals, "0").rstrip("0")
        return f"{whole}{'.' + fraction if fraction else ''} {self.symbol}"


class Journal:
    """Writes log entries; with `as_json` each is `{"event": …, "text": …, …}`."""

    def __init__(self, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._as_json = as_json
        self._stream = stream or sys.stdout
        self._last = ""

    def say(self, event: str, text: str, **facts: Any) -> None:
        line = self._line(event, text, facts)
        self._stream.write(f"{line}\n")  # one write: a container's log collector takes each write for a line
        self._stream.flush()
        self._last = line

    def once(self, event: str, text: str, **facts: Any) -> None:
        """Logs the entry unless it equals the last one."""
        if self._line(event, text, facts) != self._last:
            self.say(event, text, **facts)

    def _line(self, event: str, text: str, facts: dict[str, Any]) -> str:
        """Returns one line. Replaces unprintable characters: a stranger's text must not control the terminal.

        JSON escapes them.
        """
        if self._as_json:
            return json.dumps({"event": event, "text": text, **facts})
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    def sums(self, done: Summary, money: Money) -> None:
        earned, redeemed = money.text(int(done.earned)), money.text(int(done.redeemed))
        text = f"accepted {done.accepted}, rejected {done.rejected}, earned {earned}, redeemed {redeemed}"
        if done.unpaid:
            text += f", {done.unpaid} not paid yet"
        if done.accused:
            text += f". ACCUSED in {done.accused} cases, which are decided on the chain: gradmarket wallet case list"
        self.say("summary", text, **asdict(done))
