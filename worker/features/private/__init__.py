"""Private jobs: takes part with rows of this machine's own, which never leave it, and counts what is told of them."""

from worker.feature import WorkerFeature
from worker.features.private.holder_files import RoundFiles, RowUsesFolder
from worker.features.private.own_rows import OwnRows
from worker.features.private.row_uses import NO_BUDGET, RowBudget
from worker.features.private.taking_part import TakingPart
from worker.markets.market_session import Shared
from worker.markets.worker_context import WorkerContext
from worker.settings import WorkerSettings


class HeldRowsFeature(WorkerFeature):
    name = "private"
    serves = frozenset({"dataset"})

    def open_rows(self, settings: WorkerSettings) -> OwnRows | None:
        if settings.dataset is None:
            return None
        budget = NO_BUDGET if settings.row_epsilon is None else RowBudget(settings.row_epsilon, settings.row_delta)
        uses, rounds = RowUsesFolder(settings.data / "row-uses"), RoundFiles(settings.data / "rounds")
        return OwnRows.opened(settings.dataset, uses, rounds, budget)

    def open_entry(self, shared: Shared, context: WorkerContext) -> TakingPart | None:
        return TakingPart(context, shared.own, shared.runner) if isinstance(shared.own, OwnRows) else None
