"""What a worker earned since it started, said every minute in which it earned something, with what that is an hour."""

import time
from collections.abc import Callable
from typing import Final

from gradmarket.market.money import TokenUnit
from worker.journal import Journal
from worker.money.account_store import AccountStore
from worker.money.session_summary import sum_accounts

EVERY_S: Final = 60.0
HOUR_S: Final = 3600


class SoFar:
    """`clock` gives seconds. What is earned before the first call does not count."""

    def __init__(self, store: AccountStore, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._journal, self._clock = store, journal, clock
        self._before = self._said = sum_accounts(store.accounts)
        self._began = self._at = clock()

    def turn(self, money: TokenUnit) -> None:
        """Says it if EVERY_S are over and more was accepted or rejected since the last time."""
        now = self._clock()
        if now - self._at < EVERY_S:
            return
        self._at, new = now, sum_accounts(self._store.accounts)
        if (new.accepted, new.rejected) != (self._said.accepted, self._said.rejected):
            self._log_earnings(money, now - self._began)
        self._said = new

    def _log_earnings(self, money: TokenUnit, seconds: float) -> None:
        new = sum_accounts(self._store.accounts)
        accepted, earned = new.accepted - self._before.accepted, new.earned - self._before.earned
        hourly = int(earned * HOUR_S / seconds)
        text = (
            f"So far: {accepted} accepted, {new.rejected - self._before.rejected} rejected, {money.text(earned)} in "
            f"{seconds / 60:.0f} min, waiting included: {money.about(hourly)} an hour."
        )
        facts = {"accepted": accepted, "earned": str(earned), "seconds": round(seconds), "hourly": str(hourly)}
        self._journal.say("so_far", text, **facts)
