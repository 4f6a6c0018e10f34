"""Between turns: money that should be on the chain by now, and jobs that have ended."""

import time
from typing import Final

from gradmarket.market.errors import MarketError
from gradmarket.worker.desk import Desk
from gradmarket.worker.held import Shelf
from gradmarket.worker.money import Purse
from gradmarket.worker.vouchers import Account

URGENT_S: Final = 1.0
CLOSING_TRIES: Final = 5
CLOSING_PAUSE_S: Final = 1.0


class Upkeep:
    def __init__(self, desk: Desk, purse: Purse, shelf: Shelf) -> None:
        self._desk = desk
        self._purse = purse
        self._shelf = shelf
        self._next = 0.0
        self._next_urgent = 0.0

    def turn(self) -> None:
        """Every so many seconds, and sooner in trouble."""
        if time.monotonic() < self._next and not self._urgent():
            return
        self._next = time.monotonic() + self._desk.settings.upkeep_s
        for account in self._desk.accounts():
            try:
                self._look_after(account)
            except MarketError as error:
                self._desk.journal.once("upkeep", f"{account.job}: {error}", job=account.job)

    def _trouble(self) -> bool:
        """The requester owes too much, and a voucher of its is not redeemed."""
        if self._desk.book.unpaid(self._desk.signer) < self._desk.limits.unpaid:
            return False
        return any(account.redeemable for account in self._desk.accounts())

    def _urgent(self) -> bool:
        if time.monotonic() < self._next_urgent or not self._trouble():
            return False
        self._next_urgent = time.monotonic() + URGENT_S
        return True

    def _look_after(self, account: Account) -> None:
        settings = self._desk.settings
        if account.vouchered:
            self._purse.name_payout()
        in_flight = any(held.lease.offer.job == account.chain_job for held in self._shelf.open())
        if self._trouble() or self._purse.due(account, settings.redeem_at, settings.redeem_before_s, time.time()):
            self._purse.redeem(account)
        elif not in_flight and not account.unpaid and self._desk.has_ended(account):
            self._purse.close(account)

    def close_all(self) -> None:
        """At leaving: every job's money is redeemed and its reservation released, or tried CLOSING_TRIES times."""
        for account in self._desk.accounts():
            for _ in range(CLOSING_TRIES):
                if self._purse.close(account):
                    break
                self._desk.signals.pause(CLOSING_PAUSE_S)
