"""Private jobs: takes part with rows of this machine's own, which never leave it, and counts their disclosure. It takes
part once the job is published and the rows fit it."""

from urllib.parse import quote

from gradmarket.market.errors import MarketError
from gradmarket.market.features.private.holder_rows import HoldingReceipt
from gradmarket.runner import Runner
from worker.feature import WorkerFeature
from worker.features.private.holder_files import RoundFiles, RowUsesFolder
from worker.features.private.own_rows import OwnRows
from worker.features.private.row_uses import NO_BUDGET, RowBudget
from worker.markets.market_session import Shared
from worker.markets.worker_context import ENDED, WorkerContext
from worker.settings import WorkerSettings


class TakingPart:
    """Discloses nothing of the rows but their number, and that only with the owner's permission."""

    def __init__(self, context: WorkerContext, own: OwnRows, runner: Runner) -> None:
        self._context, self._own, self._runner = context, own, runner
        (self._job,) = context.settings.jobs
        self.done = False

    def turn(self) -> None:
        """Joins unless it has; reports once why it cannot."""
        if self.done:
            return
        try:
            self.done = self._join_job()
        except MarketError as error:
            text = f"Cannot take part in {self._job}: {error}"
            self._context.journal.once("dataset", text, job=self._job, why=str(error))

    def _join_job(self) -> bool:
        context, job, own = self._context, self._job, self._own
        listed = context.market.job(job)
        if listed.publication is None or listed.state in ENDED:
            return False
        with self._runner.alone:
            own.check(listed.publication.spec, self._runner)
        rows = own.count if context.settings.tell_rows else None
        path = f"/v1/work/holdings/{quote(job, safe='')}"
        stands = context.market.signed_in(HoldingReceipt, "PUT", path, json={"rows": rows}).rows
        described = in_words(rows, stands)
        text = f"Takes part in {context.name(job)} with {described} of {own.folder}. They stay on this machine."
        context.journal.report("takes_part", text, job=job, rows=rows, weighs_as=stands)
        return True


def in_words(rows: int | None, stands: int | None) -> str:
    """Returns a text on the rows, and on their number when the job was first joined, where that differed."""
    now = _format_row_count(rows)
    return now if rows == stands else f"{now}, weighed by its first number, {_format_row_count(stands)},"


def _format_row_count(rows: int | None) -> str:
    return f"{rows} rows" if rows else "rows without a number"


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
