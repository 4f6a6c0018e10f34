"""The fields of the JSON between worker and requester, and what all of its messages have in common."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from gradmarket.market.fields import hex_bytes
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import JobId, ReplicaId, Units

NumbersField = Annotated[bytes, *hex_bytes(sketch_packing.BYTES)]
"""One tensor of a sketch: float32, little-endian."""
UnitsField = Annotated[Units, Field(ge=0, lt=2**63)]
ReplicaField = Annotated[ReplicaId, Field(pattern=r"^[0-9A-Za-z-]{1,128}$")]
JobField = Annotated[JobId, Field(pattern=r"^[0-9A-Za-z-]{1,64}$")]
NO_NUL: Final = r"^[^\x00]*$"
"""PostgreSQL's texts hold every character but NUL. No pattern matches half of a surrogate pair."""
NumbersFields = Annotated[
    dict[Annotated[str, Field(max_length=200, pattern=NO_NUL)], NumbersField], Field(max_length=sketch_packing.TENSORS)
]
"""A sketch by the names of its tensors."""


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
