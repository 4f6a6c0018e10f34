"""scikit-learn's bundled handwritten digits (UCI ML, Alpaydin and Kaynak 1998): 1,797 images of 8 x 8, ten classes."""

import gzip
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import NotFound
from gradmarket.market.manifest import Column, Manifest, Partition
from gradmarket.market.terms import blob_digest
from graphdoc import tensors

SHAPE: Final = (1, 8, 8)
CLASSES: Final = 10
TRAINING_PARTITIONS: Final = 4
TEST_EVERY: Final = 5
"""Every fifth image is held out."""


def is_installed() -> bool:
    """Returns whether this process has scikit-learn, whose file the dataset is."""
    return find_spec("sklearn") is not None


def build_manifest() -> Manifest:
    """Returns four training partitions and `test`: `x` float32 (rows, 1, 8, 8) in 0..1, `y` int64 (rows,)."""
    inputs = {"x": Column(dtype="float32", shape=SHAPE), "y": Column(dtype="int64", classes=CLASSES)}
    return Manifest(inputs=inputs, partitions=tuple(partition for partition, _ in _pack_partitions()))


def store_partitions(put: Callable[[bytes], object]) -> None:
    """Passes each partition's bytes to `put`."""
    for _, data in _pack_partitions():
        put(data)


@cache
def _pack_partitions() -> tuple[tuple[Partition, bytes], ...]:
    """Returns the partitions and their bytes, 0.5 MB together, read once a process."""
    images = load_table()
    x = (images[:, :-1].reshape(-1, *SHAPE) / 16.0).astype(np.float32)
    y = images[:, -1].astype(np.int64)
    held_out = np.arange(len(y)) % TEST_EVERY == 0
    parts = [_pack_partition("test", x[held_out], y[held_out])]
    x, y = x[~held_out], y[~held_out]
    for index in range(TRAINING_PARTITIONS):
        mine = np.arange(len(y)) % TRAINING_PARTITIONS == index
        parts.append(_pack_partition(f"train-{index}", x[mine], y[mine]))
    return tuple(parts)


def load_table() -> NDArray[np.float64]:
    """Returns one image a row: 64 pixels of 0..16, then its digit. Importing scikit-learn for its file would take a
    second.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise NotFound("scikit-learn is not installed: its digits are the data")
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        return np.loadtxt(file, delimiter=",")


def _pack_partition(name: str, x: NDArray[np.float32], y: NDArray[np.int64]) -> tuple[Partition, bytes]:
    data = tensors.pack_tensors({"x": x, "y": y})
    digest = blob_digest(data)
    return Partition(name=name, link=f"/v1/blobs/{digest}", digest=digest, bytes=len(data), rows=len(y)), data
