"""Describes to the market why this worker could not compute a lease: the kind of fault, and where it occurred."""

import re
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

    For a failed step it also checks whether the data are the cause.
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
    return _looked_into(context, lease, fault) if kind == FaultKind.STEP_FAILED else fault


def _looked_into(context: WorkerContext, lease: Lease, fault: StepFault) -> StepFault:
    """Adds the partition, and the input and row that the step does not accept, where the step fails by the data."""
    publication = context.view(lease.job).publication
    if publication is None:
        return fault
    try:
        partition, bad = context.executor.bad_row(publication, lease.offer.struct())
    except MarketError:
        return fault
    located = fault.model_copy(update={"partition": shorten_printable(partition, 200)})
    return (
        located
        if bad is None
        else located.model_copy(update={"input": shorten_printable(bad.input, 100), "row": bad.row})
    )


class StepFaultsFeature(WorkerFeature):
    name = "fault_reports"

    def describe_fault(self, context: WorkerContext, lease: Lease, error: Exception) -> StepFault | None:
        return fault_of(context, lease, error)
