"""The fault that kept a worker from computing a task, as the worker reports it."""

from enum import StrEnum

from pydantic import Field

from gradmarket.market.fields import Part
from gradmarket.market.printable import Printable


class FaultKind(StrEnum):
    STEP_FAILED = "step_failed"
    """An operator refuses its arguments."""
    DATA_REFUSED = "data_refused"
    """A partition is not what its manifest declares."""
    LINK_FAILED = "link_failed"
    """A partition's link does not serve it."""
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    REFUSED = "refused"
    """What was published is invalid in another way."""


class StepFault(Part):
    """What kept a worker from computing. Texts are empty and `row` is null where unknown."""

    kind: FaultKind
    node: Printable = Field(default="", max_length=120)
    """The failed step of the document: its number and its operator."""
    partition: Printable = Field(default="", max_length=200)
    input: Printable = Field(default="", max_length=100)
    row: int | None = Field(default=None, ge=0, lt=2**40)
    """Row within the partition."""
    message: Printable = Field(default="", max_length=300)

    @property
    def place(self) -> tuple[str, ...]:
        """The part of the report that two workers' reports of one failure share; the rest differs between machines."""
        if self.kind == FaultKind.STEP_FAILED:
            return (self.kind, self.node, self.partition)
        return (self.kind, self.partition)
