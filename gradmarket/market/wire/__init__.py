"""The messages between requester, workers, auditors and holders, as JSON and as framed bytes."""

from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field

from gradmarket.market.fields import ID, NO_NUL, OneFaultModel, hex_bytes
from gradmarket.market.terms import JobId, ReplicaId, TaskId, Units

SKETCH_WIDTH: Final = 64
"""Numbers of a sketch (gradient.projection) for each tensor."""
SKETCH_BYTES: Final = 4 * SKETCH_WIDTH
"""Bytes of one tensor's numbers."""
SKETCH_TENSORS: Final = 1024
"""Most tensors of an answer that is sketched, so that its reveal fits into one request."""
NumbersField = Annotated[bytes, *hex_bytes(SKETCH_BYTES)]
"""One tensor of a sketch: float32, little-endian."""
LONGEST_TEXT: Final = 2000
TextField = Annotated[str, AfterValidator(lambda text: text[:LONGEST_TEXT])]
"""A service's text: a worker shows and keeps LONGEST_TEXT characters of it."""
UnitsField = Annotated[Units, Field(ge=0, lt=2**63)]
ReplicaField = Annotated[ReplicaId, Field(pattern=r"^[0-9A-Za-z-]{1,128}$")]
JobField = Annotated[JobId, Field(pattern=ID)]
TaskField = Annotated[TaskId, Field(pattern=ID)]
NumbersFields = Annotated[
    dict[Annotated[str, Field(max_length=200, pattern=NO_NUL)], NumbersField], Field(max_length=SKETCH_TENSORS)
]
"""A sketch by the names of its tensors."""


class Wire(OneFaultModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
