"""Cuts arrays into partitions with a manifest: the same arrays and settings give the same bytes everywhere."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from gradmarket.data.inputs import check_values, columns_of
from gradmarket.market.errors import Refused
from gradmarket.market.manifest import MANIFEST, Encoding, Manifest, Partition, TextEncoding
from gradmarket.market.sampling import draw_shuffled_rows as drawn
from gradmarket.market.terms import Digest, blob_digest
from graphdoc import formats
from graphdoc.encoding import canonical
from graphdoc.formats import format_of
from graphdoc.tensors import Shifted, join_shifted_arrays

HELD_OUT: Final = "test"
PARTITION_ROWS: Final = 4096
"""The rows of a partition at most, where nobody names their number."""
SHIFTED: Final[Shifted] = MappingProxyType({"y": "x"})
BLOBS: Final = "/v1/blobs/"


@dataclass(frozen=True)
class Cut:
    """At most `rows` per partition. A fraction `held_out` of all rows, drawn by `seed`, becomes the partition `test`.

    With `base_url` links lead to a static server's folder, else to the requester's own blobs. With `classes` the
    labels in `y` are below that.
    """

    rows: int
    format: str = formats.DEFAULT
    held_out: float = 0.0
    seed: int = 0
    base_url: str | None = None
    classes: int | None = None


@dataclass(frozen=True)
class Packed:
    """A manifest and the files that it names, by partition name."""

    manifest: Manifest
    files: dict[str, bytes]

    @property
    def body(self) -> bytes:
        return canonical(self.manifest.model_dump(mode="json"))

    @property
    def digest(self) -> Digest:
        return blob_digest(self.body)


def pack_dataset(
    arrays: Mapping[str, np.ndarray],
    cut: Cut,
    encoding: Encoding | TextEncoding | None = None,
    measured: Mapping[str, np.ndarray] | None = None,
) -> Packed:
    """The rows, shuffled by the seed, in partitions of nearly one size; the manifest keeps the `encoding`.

    `measured` are rows of the same inputs that become the partition `test`, in place of a fraction. Of text the tokens
    are stored once, and the manifest has y be x moved on by one. Raises Refused, naming the row where a value is one
    that no worker could compute with.
    """
    if not 0 <= cut.held_out < 1 or cut.rows < 1:
        raise Refused("a partition has at least one row, and the held-out fraction is below 1")
    check_values(arrays, cut.classes)
    known = arrays
    if measured is not None:
        check_values(measured, cut.classes)
        known = {**arrays, "y": np.concatenate([arrays["y"], measured["y"]])}
    shifted = SHIFTED if isinstance(encoding, TextEncoding) and _moves_on(arrays) and _moves_on(measured) else {}
    kind, files, partitions = format_of(cut.format), {}, []
    for name, rows in _cut_rows(arrays, cut, measured):
        stored = join_shifted_arrays(rows, shifted)
        data = kind.write({key: np.ascontiguousarray(array) for key, array in stored.items()})
        files[name], digest, count = data, blob_digest(data), len(next(iter(rows.values())))
        partition = Partition(
            name=name, link=f"{BLOBS}{digest}", digest=digest, bytes=len(data), rows=count, format=cut.format
        )
        if cut.base_url is not None:
            link = f"{cut.base_url.rstrip('/')}/{partition.file}"
            partition = partition.model_copy(update={"link": link})
        partitions.append(partition)
    inputs = columns_of(known, cut.classes)
    text, table = (encoding, None) if isinstance(encoding, TextEncoding) else (None, encoding)
    manifest = Manifest(inputs=inputs, partitions=tuple(partitions), encoding=table, text=text, shifted=dict(shifted))
    return Packed(manifest, files)


def _moves_on(arrays: Mapping[str, np.ndarray] | None) -> bool:
    """Returns whether each y is the token after x; validation rows of one's own may be others."""
    return arrays is None or bool((arrays["x"][:, 1:] == arrays["y"][:, :-1]).all())


def write_dataset(packed: Packed, folder: Path) -> None:
    """Writes one file per partition, and the manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    for partition in packed.manifest.partitions:
        (folder / partition.file).write_bytes(packed.files[partition.name])
    (folder / MANIFEST).write_bytes(packed.body)


def _cut_rows(
    arrays: Mapping[str, np.ndarray], cut: Cut, measured: Mapping[str, np.ndarray] | None
) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Yields each partition's name and rows, the evaluation partition first."""
    if measured is not None:
        if cut.held_out:
            raise Refused("give a validation set or a fraction to hold out, not both")
        yield HELD_OUT, measured
    total = len(next(iter(arrays.values())))
    order = np.array(drawn(cut.seed.to_bytes(8, "big"), 0, 0, total, total))
    held_out = round(total * cut.held_out)
    if cut.held_out and not 0 < held_out < total:
        raise Refused(f"{cut.held_out} of {total} rows leaves none to hold out, or none to train on")
    if held_out:
        yield HELD_OUT, {key: array[order[:held_out]] for key, array in arrays.items()}
    left = order[held_out:]
    count = -(-len(left) // cut.rows)
    for number, places in enumerate(np.array_split(left, count)):
        yield f"train-{number:0{len(str(count - 1))}d}", {key: array[places] for key, array in arrays.items()}
