"""Describes to the market why this worker could not compute a lease: the kind of fault, and where it occurred."""

import re
from contextlib import suppress
from typing import Final

from gradmarket.market.errors import (
    DocumentRefused,
    MarketError,
    OutOfMemory,
    RunnerCrashed,
    RunnerTimeout,
    TensorsRefused,
)
from gradmarket.market.rules.faults import shorten_printable
from gradmarket.market.wire.poll import FaultKind, Lease, StepFault
from gradmarket.network import DownloadFailed, DownloadRefused, PartitionUnfit
from worker.feature import WorkerFeature
from worker.markets.leasing import on_own_rows
from worker.markets.worker_context import WorkerContext

KINDS: Final[tuple[tuple[type[Exception], FaultKind], ...]] = (
    (OutOfMemory, FaultKind.OUT_OF_MEMORY),
    (RunnerTimeout, FaultKind.TIMED_OUT),
    (RunnerCrashed, FaultKind.CRASHED),
    (DownloadRefused, FaultKind.LINK_FAILED),
    (DownloadFailed, FaultKind.LINK_FAILED),
    (TensorsRefused, FaultKind.DATA_REFUSED),
    (DocumentRefused, FaultKind.STEP_FAILED),
)
NODE: Final = re.compile(r"^(node \d+ \([^)]{1,80}\)|backward): (.*)$", re.DOTALL)
"""The interpreter's format for the place of a failed step."""


def fault_of(context: WorkerContext, lease: Lease, error: Exception) -> StepFault | None:
    """Returns the fault for an error of `context.compute`; None where it might reveal this machine's own rows.

    A step that failed by the data has the partition too, and the input and row that it does not accept.
    """
    if on_own_rows(context, lease):
        return None
    partition, cause = "", error
    if isinstance(error, PartitionUnfit):
        partition, cause = error.partition, error.cause
    kind = next((kind for type_, kind in KINDS if isinstance(cause, type_)), FaultKind.REFUSED)
    located = NODE.match(cause.detail if isinstance(cause, MarketError) else "")
    node, text = (located[1], located[2]) if located else ("", str(cause))
    fault = StepFault(
        kind=kind, node=node, partition=shorten_printable(partition, 200), message=shorten_printable(text, 300)
    )
    publication = context.view(lease.job).publication if kind == FaultKind.STEP_FAILED else None
    if publication is not None:
        with suppress(MarketError):
            partition, bad = context.executor.bad_row(publication, lease.offer.struct())
            fault = fault.model_copy(update={"partition": shorten_printable(partition, 200)})
            if bad is not None:
                fault = fault.model_copy(update={"input": shorten_printable(bad.input, 100), "row": bad.row})
    return fault


class StepFaultsFeature(WorkerFeature):
    name = "fault_reports"

    def describe_fault(self, context: WorkerContext, lease: Lease, error: Exception) -> StepFault | None:
        return fault_of(context, lease, error)
