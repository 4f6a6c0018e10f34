"""A worker's fault report on a step that it could not compute: its kind and its row."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from gradmarket.market.errors import DocumentRefused, MarketError, OutOfMemory, RunnerTimeout, TensorsRefused
from gradmarket.market.wire.poll import FaultKind, Lease
from gradmarket.network import DownloadRefused, PartitionUnfit
from graphdoc.figures import Range
from graphdoc.values import Outside
from worker.features.fault_reports import fault_of
from worker.markets.worker_context import WorkerContext


@dataclass
class Looking:
    """Stands in for a context and its executor, with a finding in the task's rows."""

    bad: Outside | MarketError | None = None

    @property
    def executor(self) -> "Looking":
        return self

    publication = object()

    def view(self, _job: str) -> "Looking":
        return self

    def spec(self, _job: str) -> None:
        """Not read: the job's rows are published."""

    def bad_row(self, _publication: object, _offer: object) -> tuple[str, Outside | None]:
        if isinstance(self.bad, MarketError):
            raise self.bad
        return "train-0", self.bad


class Leased:
    job = "job"

    @property
    def offer(self) -> "Leased":
        return self

    def struct(self) -> object:
        return object()


def dump_fault(error: Exception, context: Looking | None = None) -> dict[str, Any]:
    fault = fault_of(cast(WorkerContext, context or Looking()), cast(Lease, Leased()), error)
    return fault.model_dump(mode="json", exclude_defaults=True)


FAILED = DocumentRefused("node 3 (cross_entropy_loss.default): Target 7 is out of bounds.")


def test_a_step_that_fails_names_its_node_and_the_row() -> None:
    assert dump_fault(FAILED, Looking(Outside("y", 17, 7, Range(0, 4, None)))) == {
        "kind": "step_failed",
        "node": "node 3 (cross_entropy_loss.default)",
        "partition": "train-0",
        "input": "y",
        "row": 17,
        "message": "Target 7 is out of bounds.",
    }


def test_a_fault_without_a_found_row_names_the_node() -> None:
    assert "row" not in dump_fault(FAILED)
    assert dump_fault(FAILED, Looking(RunnerTimeout("10 s")))["node"] == "node 3 (cross_entropy_loss.default)"


@pytest.mark.parametrize(
    ("error", "kind", "partition"),
    [
        (PartitionUnfit("train-0", TensorsRefused("y is float32[4], not int64[4]")), FaultKind.DATA_REFUSED, "train-0"),
        (PartitionUnfit("train-0", DownloadRefused("the answer is 404")), FaultKind.LINK_FAILED, "train-0"),
        (OutOfMemory("node 3 (linear.default): no"), FaultKind.OUT_OF_MEMORY, ""),
        (RunnerTimeout("60 s"), FaultKind.TIMED_OUT, ""),
        (ValueError("what\x1b[2J"), FaultKind.REFUSED, ""),
    ],
)
def test_each_failure_has_its_kind_and_its_partition(error: Exception, kind: FaultKind, partition: str) -> None:
    said = dump_fault(error)
    assert (said["kind"], said.get("partition", "")) == (kind.value, partition)
    assert said["message"].isprintable()
