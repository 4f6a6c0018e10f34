"""A watchtower: redeems vouchers and contests accusations for a worker that is offline, with a key that can do nothing
else. The worker exports what that takes, and keeps the export up to date while it runs."""

from contextlib import AbstractContextManager

from worker.feature import WorkerFeature
from worker.features.watchtower.export_sync import ExportSync
from worker.features.watchtower.watch_commands import export_watch, watch
from worker.markets.market_session import Shared


class WatchtowerFeature(WorkerFeature):
    name = "watchtower"
    needs = ("stakes",)
    wallet_commands = {"watch": watch, "export-watch": export_watch}

    def run_beside(self, shared: Shared) -> AbstractContextManager[object]:
        return ExportSync(shared.settings, shared.wallet, shared.journal).running()
