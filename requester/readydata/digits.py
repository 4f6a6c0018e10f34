"""scikit-learn's bundled handwritten digits (UCI ML, Alpaydin and Kaynak 1998): 1,797 images of 8 x 8, ten classes."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from gradmarket.market.job import Manifest, Partition
from gradmarket.market.model import tensors
from gradmarket.requester.blobs.disk import DiskBlobs

SHAPE: Final = (1, 8, 8)
CLASSES: Final = 10
TRAINING_PARTITIONS: Final = 4
TEST_EVERY: Final = 5
"""Every fifth image is held out."""


def manifest(blobs: DiskBlobs) -> Manifest:
    """Four training partitions and `test`, as blobs: `x` float32 (rows, 1, 8, 8) in 0..1, `y` int64 (rows,)."""
    images, labels = load_digits(return_X_y=True)
    x = (images.reshape(-1, *SHAPE) / 16.0).astype(np.float32)
    y = labels.astype(np.int64)
    held_out = np.arange(len(y)) % TEST_EVERY == 0
    parts = [_partition(blobs, "test", x[held_out], y[held_out])]
    x, y = x[~held_out], y[~held_out]
    for index in range(TRAINING_PARTITIONS):
        mine = np.arange(len(y)) % TRAINING_PARTITIONS == index
        parts.append(_partition(blobs, f"train-{index}", x[mine], y[mine]))
    return Manifest(partitions=tuple(parts))


def _partition(blobs: DiskBlobs, name: str, x: NDArray[np.float32], y: NDArray[np.int64]) -> Partition:
    data = tensors.pack({"x": x, "y": y})
    digest = blobs.put(data)
    return Partition(name=name, link=f"/v1/blobs/{digest}", digest=digest, bytes=len(data), rows=len(y))
