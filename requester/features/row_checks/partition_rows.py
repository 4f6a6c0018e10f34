"""Rows of partitions that are stored here, as features read them."""

import math
import threading
from collections import OrderedDict
from typing import Final

import numpy as np

from gradmarket.market.manifest import Manifest, Partition
from requester.blobs import Blobs
from requester.merge_turns import SPARE_THREADS
from requester.model_runner import ModelRunner, RunnerPart

AT_ONCE: Final = 1 + SPARE_THREADS
"""Partitions whose rows are cached: one for each evaluation of a round that may run at once."""


class PartitionRows(RunnerPart):
    def __init__(self, modelling: ModelRunner) -> None:
        super().__init__(modelling)
        self._reading = threading.Lock()
        self._held_out: OrderedDict[str, dict[str, np.ndarray]] = OrderedDict()

    def held_out(self, blobs: Blobs, manifest: Manifest, partition: Partition) -> dict[str, np.ndarray]:
        """Returns the rows of a partition stored here, read by the runner; the last ones are cached. Raises Refused."""
        key = manifest.key(partition)
        with self._reading:
            arrays = self._held_out.pop(key, None)
            if arrays is None:
                arrays = self.modelling.reader.read_partition(manifest, partition, blobs.read(partition.digest))
            self._held_out[key] = arrays
            while len(self._held_out) > AT_ONCE:
                self._held_out.popitem(last=False)
            return arrays

    def may_read_partition(self, manifest: Manifest, partition: Partition) -> bool:
        """Whether the reader has enough memory for the partition's file and arrays."""
        arrays = sum(
            math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in manifest.batch(partition.rows).values()
        )
        return 2 * (partition.bytes + arrays) <= self.modelling.reader.settings.memory_bytes
