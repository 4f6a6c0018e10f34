"""What a row of a dataset is, input by input."""

from typing import Annotated, Literal

from pydantic import Field

from gradmarket.market.fields import Part

InputName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
Dimension = Annotated[int, Field(ge=1, le=2**31)]


class Column(Part):
    """One input of the model: its element type, and its shape in one row."""

    dtype: Literal["float32", "int64", "int32", "uint8", "bool"]
    shape: Annotated[tuple[Dimension, ...], Field(max_length=8)] = ()
    classes: int | None = Field(default=None, ge=1, le=2**31)
    """Its values are labels from 0 to below this number; null where they are not labels."""


Inputs = Annotated[dict[InputName, Column], Field(min_length=1, max_length=64)]
