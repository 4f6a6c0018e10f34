"""The dataset of a job: the inputs of a row, and the partitions that contain the rows."""

from typing import Annotated, Final, Literal

from pydantic import FailFast, Field, ValidationError, field_validator, model_validator

from gradmarket.market.errors import JobRefused
from gradmarket.market.fields import Count, DigestField, Part, first_fault
from graphdoc import formats
from graphdoc.tensors import Expected

PARTITION_BYTES: Final = 2**40
MANIFEST: Final = "manifest.json"
"""The manifest's name where the dataset is a folder."""
CATEGORIES_AT_MOST: Final = 1_000
WORD_LENGTH: Final = 200
ColumnName = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(max_length=WORD_LENGTH)]
InputName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
Dimension = Annotated[int, Field(ge=1, le=2**31)]


class Column(Part):
    """One input of the model: its element type, and its shape in one row."""

    dtype: Literal["float32", "int64", "int32", "uint8", "bool"]
    shape: Annotated[tuple[Dimension, ...], Field(max_length=8)] = ()
    classes: int | None = Field(default=None, ge=1, le=2**31)
    """Its values are labels from 0 to below this number; null where they are not labels."""


Inputs = Annotated[dict[InputName, Column], Field(min_length=1, max_length=64)]


class Labelled(Part):
    """Rows of `x`, with labels or next tokens `y` below `classes`."""

    dtype: str
    shape: tuple[int, ...]
    classes: int

    @property
    def reads(self) -> str:
        return "tokens" if self.dtype in ("int64", "int32") else "numbers"


class Partition(Part):
    """A linked part of the dataset: `link` is an absolute address, or a path under the requester's own."""

    name: str = Field(min_length=1, max_length=200)
    link: str = Field(min_length=1, max_length=2000)
    digest: DigestField
    bytes: int = Field(ge=1, le=PARTITION_BYTES)
    rows: Count
    format: str = Field(default=formats.DEFAULT, max_length=40)

    @property
    def file(self) -> str:
        """The name of its file where the dataset is a folder."""
        return f"{self.name.rpartition('/')[2]}.{self.format}"

    @field_validator("format")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in formats.list_format_names():
            raise ValueError(f"no format {name!r}: choose one of {', '.join(formats.list_format_names())}")
        return name


class Encoding(Part):
    """How inputs were made of a table's columns: `categories` are the words of columns of words, in their order."""

    inputs: dict[InputName, tuple[ColumnName, ...]] = Field(min_length=1, max_length=64)
    categories: dict[ColumnName, Annotated[tuple[Word, ...], Field(max_length=CATEGORIES_AT_MOST)]] = Field(
        default={}, max_length=10_000
    )


class TextEncoding(Part):
    """How rows were made of text: `tokenizer` is "bytes" or the name of another, `vocabulary` its number of tokens.

    `x` is `length` tokens of the text, `y` the same moved on by one.
    """

    tokenizer: str = Field(min_length=1, max_length=200)
    vocabulary: int = Field(ge=1, le=2**31)
    length: Count


class Manifest(Part):
    """The dataset. Every partition's arrays have exactly the names, element types and shapes of `inputs`."""

    inputs: Inputs
    partitions: Annotated[tuple[Partition, ...], FailFast()] = Field(max_length=100_000)
    """None where all rows stay with their holders."""
    encoding: Encoding | None = Field(default=None, exclude_if=lambda value: value is None)
    """The encoding of a dataset made from a table or pictures; omitted for any other."""
    text: TextEncoding | None = Field(default=None, exclude_if=lambda value: value is None)
    """The encoding of a dataset made from text; omitted for any other."""

    shifted: dict[InputName, InputName] = Field(default={}, max_length=1, exclude_if=lambda value: not value)
    """{"y": "x"}: no partition stores y, which is x moved on by one; x is stored with one element more in a row's first
    dimension, the last of y. Omitted where all inputs are stored."""

    @model_validator(mode="after")
    def _moves_on_like_inputs(self) -> "Manifest":
        for name, source in self.shifted.items():
            one, other = self.inputs.get(name), self.inputs.get(source)
            if one is None or other is None or name == source:
                raise ValueError(f"shifted: {name} moves on from {source}, and both are inputs, and not the same one")
            if (one.dtype, one.shape) != (other.dtype, other.shape) or not one.shape:
                raise ValueError(f"shifted: {name} is {source} moved on, so both have one type and shape in a row")
        return self

    @model_validator(mode="after")
    def _names(self) -> "Manifest":
        names = [partition.name for partition in self.partitions]
        if len(set(names)) != len(names):
            raise ValueError("two partitions have one name")
        return self

    def named(self, name: str) -> Partition:
        for partition in self.partitions:
            if partition.name == name:
                return partition
        raise JobRefused("evaluation.partition", f"the manifest has no partition {name!r}")

    @property
    def labelled(self) -> "Labelled | None":
        """Its `x` and `y` as ready architectures take them, if these are its only inputs; else None."""
        x, y = self.inputs.get("x"), self.inputs.get("y")
        if x is None or y is None or y.classes is None or len(self.inputs) != 2:
            return None
        return Labelled(dtype=x.dtype, shape=x.shape, classes=y.classes)

    def batch(self, rows: int) -> Expected:
        """Returns shape and element type of each input over this many rows."""
        return {name: ((rows, *column.shape), column.dtype) for name, column in self.inputs.items()}

    def key(self, partition: Partition) -> str:
        """Returns a key of the partition's arrays: two manifests may declare different arrays for one file."""
        declared = sorted(self.batch(partition.rows).items()), sorted(self.shifted.items())
        return f"{partition.digest} {partition.format} {declared}"


def parse_manifest(data: bytes) -> Manifest:
    """Returns the manifest of these bytes, perhaps a stranger's. Raises JobRefused, naming the invalid field."""
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise JobRefused(*first_fault(error, "data.manifest")) from None
