"""Stakes: money at risk in a job, the accusations that would slash it, and rulings of validators."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict

from gradmarket.market.terms import Address
from worker.feature import WalletLine, WorkerFeature
from worker.features.stakes import case_commands, stake_commands
from worker.features.stakes.accusation_watch import AccusationWatch, count_open_cases
from worker.features.stakes.cases import list_open_accusations
from worker.features.stakes.stake import list_staked_risks
from worker.markets.market_session import Shared
from worker.settings import WorkerSettings


class StakingFeature(WorkerFeature):
    name = "stakes"
    needs = ("verify",)
    wallet_commands = {"case": case_commands.app, "stake": stake_commands.stake, "unstake": stake_commands.unstake}

    def run_beside(self, shared: Shared) -> AbstractContextManager[object]:
        return AccusationWatch.of_wallet(shared.settings, shared.wallet, shared.journal).running()

    def count_accusations(self, settings: WorkerSettings) -> int:
        return count_open_cases(settings)

    def list_wallet_lines(
        self, settings: WorkerSettings, me: Address, say: Callable[[str], None]
    ) -> Mapping[str, Sequence[WalletLine]]:
        risks, cases = list_staked_risks(settings, me, say), list_open_accusations(settings, me, say)
        return {
            "stakes": [WalletLine(one.text(), asdict(one)) for one in risks],
            "accusations": [WalletLine(one.text(), asdict(one)) for one in cases],
        }
