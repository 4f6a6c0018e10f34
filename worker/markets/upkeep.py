"""Periodic work between turns: redeems vouchers that are due, and closes the accounts of jobs that have ended."""

import time
from typing import Final

from worker.markets.leasing import UNFIT
from worker.markets.worker_context import WorkerContext
from worker.money.account_store import JobAccount
from worker.money.redeemer import Redeemer
from worker.protocol.in_flight import InFlightFolder

URGENT_S: Final = 1.0
CLOSING_TRIES: Final = 5
CLOSING_PAUSE_S: Final = 1.0


class Upkeep:
    def __init__(self, context: WorkerContext, redeemer: Redeemer, replica_files: InFlightFolder) -> None:
        self._context = context
        self._redeemer = redeemer
        self._replica_files = replica_files
        self._next = 0.0
        self._next_urgent = 0.0

    def turn(self) -> None:
        """Checks all accounts every `upkeep_s` seconds, and sooner in trouble."""
        if time.monotonic() < self._next and not self._is_urgent_upkeep_due():
            return
        self._next = time.monotonic() + self._context.settings.upkeep_s
        for account in self._context.accounts():
            try:
                self._look_after(account)
            except UNFIT as error:
                self._context.journal.once("upkeep", f"{account.job}: {error}", job=account.job)

    def _is_debt_redeemable(self) -> bool:
        """Returns whether the requester owes too much while one of its vouchers is not redeemed."""
        if self._context.account_store.unpaid(self._context.signer) < self._context.limits.unpaid:
            return False
        return any(account.redeemable for account in self._context.accounts())

    def _is_urgent_upkeep_due(self) -> bool:
        if time.monotonic() < self._next_urgent or not self._is_debt_redeemable():
            return False
        self._next_urgent = time.monotonic() + URGENT_S
        return True

    def _look_after(self, account: JobAccount) -> None:
        settings, limits = self._context.settings, self._context.limits
        if account.vouchered:
            self._redeemer.name_payout(account)
        in_flight = any(held.lease.offer.job == account.chain_job for held in self._replica_files.open())
        if self._is_debt_redeemable() or self._redeemer.due(account, limits.redeem_at, settings.redeem_before_s):
            self._redeemer.redeem(account)
        elif not in_flight and not account.unpaid and self._context.has_ended(account):
            self._redeemer.close(account)

    def close_all(self) -> None:
        """Redeems every job's money and releases its reservation when leaving, in at most CLOSING_TRIES tries each."""
        for account in self._context.accounts():
            for _ in range(CLOSING_TRIES):
                if self._redeemer.close(account):
                    break
                self._context.signals.pause(CLOSING_PAUSE_S)
