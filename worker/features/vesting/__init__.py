"""Vesting: what of the wallet's pay is locked, and until when."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from gradmarket.market.terms import Address
from worker.feature import WalletLine, WorkerFeature
from worker.features.vesting.locked_pay import list_locked_pay
from worker.settings import WorkerSettings


class LockedPayFeature(WorkerFeature):
    name = "vesting"

    def list_wallet_lines(
        self, settings: WorkerSettings, me: Address, say: Callable[[str], None]
    ) -> Mapping[str, Sequence[WalletLine]]:
        return {"locked": [WalletLine(one.text(), asdict(one)) for one in list_locked_pay(settings, me, say)]}
