"""The rows of tasks: partitions, fetched and read ahead of the tasks that need them."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.held_rows import HeldRows, StepCorrection, Taken
from gradmarket.compute.prefetch import Prefetch
from gradmarket.market.errors import JobRefused, MarketError, Refused
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import Publication
from gradmarket.market.manifest import Manifest, Partition, parse_manifest
from gradmarket.market.messages import Offer
from gradmarket.market.sampling import list_training_partitions, partition_of, task_rows
from gradmarket.market.terms import Digest
from gradmarket.network import PartitionUnfit
from gradmarket.runner import Runner
from gradmarket.runner.drawn_rows import build_drawn_counts

PARTITIONS_KEPT: Final = 4
"""Kept unpacked, those prefetched included."""


class Partitions:
    """Reads partitions in the runner's child; the newest stay in memory."""

    def __init__(self, runner: Runner, fetcher: Fetcher, own: HeldRows | None = None) -> None:
        self._runner, self._fetcher, self._own = runner, fetcher, own
        self._kept: Prefetch[Arrays] = Prefetch(PARTITIONS_KEPT)
        self._manifests: dict[Digest, Manifest] = {}
        self._place = -1
        """The place of the task worked on last (JobSpec.place)."""

    def manifest(self, digest: Digest) -> Manifest:
        if digest not in self._manifests:
            self._manifests[digest] = parse_manifest(self._fetcher.fetch_described(digest))
        return self._manifests[digest]

    def rows(self, publication: Publication, round_number: int, task: int) -> list[int]:
        """Returns the numbers of the task's rows in its partition."""
        if not publication.spec.repeatable:
            return self.own.rows(publication.spec, round_number)
        return task_rows(self.manifest(publication.manifest), publication.spec, round_number, task)

    def batch(
        self, publication: Publication, round_number: int, task: int, counts: bool = True
    ) -> tuple[dict[str, np.ndarray], Arrays]:
        """Returns the task's rows of its partition; the same on every replica, except where they are a holder's own.

        The counts of drawn rows come with them where steps draw at random (runner.drawn_rows). Where the job bounds
        each row's privacy loss, their use is counted first, unless `counts` is false because the result stays here.
        Raises Refused where their budget is spent.
        """
        if publication.spec.step.by_row:
            steps = self.own.take(publication, counts)
            drawn = build_drawn_counts([step.drawn for step in steps]) if publication.spec.step.by_chance else {}
            return self._join_own_rows([piece for step in steps for piece in step.pieces]), drawn
        _partition, arrays = self.of_task(publication, round_number, task)
        return select_rows(arrays, self.rows(publication, round_number, task)), {}

    def control(self, publication: Publication, number: int) -> StepCorrection | None:
        """Returns the correction of a job's steps on this machine's own rows, where the job corrects them."""
        return None if publication.spec.repeatable else self.own.open_correction(publication, number)

    def afford(self, publication: Publication) -> None:
        """Raises Refused where a task would exceed the job's privacy budget of this machine's own rows."""
        if publication.spec.step.by_row:
            self.own.check_budget(publication)

    def _join_own_rows(self, taken: Sequence[Taken]) -> dict[str, np.ndarray]:
        """Returns these rows of this machine's own partitions, one after the other; each partition is read once."""
        parts: dict[int, dict[str, np.ndarray]] = {}
        for wanted in {partition.digest: partition for partition, _ in taken}.values():
            arrays = self._load_own_partition(wanted)
            mine = ((place, rows) for place, (partition, rows) in enumerate(taken) if partition.digest == wanted.digest)
            parts |= {place: select_rows(arrays, rows) for place, rows in mine}
        return {name: np.concatenate([parts[place][name] for place in range(len(taken))]) for name in parts[0]}

    def _load_own_partition(self, partition: Partition) -> Arrays:
        return self._kept.take(self.own.manifest.key(partition), lambda: self.own.read(partition, self._runner))

    def of_task(self, publication: Publication, round_number: int, task: int) -> tuple[Partition, Arrays]:
        """Returns the partition that holds the task's rows, and its arrays."""
        spec, manifest = publication.spec, self.manifest(publication.manifest)
        if not spec.repeatable:
            mine = self.own.partition(round_number)
            return mine, self._load_own_partition(mine)
        if not list_training_partitions(manifest, spec):
            raise JobRefused("data", "the manifest has no partition to train on")
        partition = partition_of(manifest, spec, spec.place(round_number, task))
        return partition, self._kept.take(manifest.key(partition), lambda: self._fetch_partition(manifest, partition))

    @property
    def own(self) -> HeldRows:
        """This machine's own rows, for private jobs. Raises Refused where there are none."""
        if self._own is None:
            raise Refused("the job's rows stay with their holders, and this worker has none: name a folder (--dataset)")
        return self._own

    def largest(self, publication: Publication) -> int:
        """Returns the bytes of the largest partition that a task downloads. Raises Refused as `own` does."""
        if not publication.spec.repeatable:
            self.own  # noqa: B018
        partitions = list_training_partitions(self.manifest(publication.manifest), publication.spec)
        return max((partition.bytes for partition in partitions), default=0)

    def look_ahead(self, publication: Publication, offer: Offer) -> None:
        """Prefetches the partition of the probable next task: as many tasks further as this one is from the last."""
        place = publication.spec.place(offer.round, offer.task)
        stride = place - self._place if 0 <= self._place < place else 1
        self._place = place
        self.expect(publication, place + stride)

    def expect(self, publication: Publication, place: int) -> None:
        if not publication.spec.repeatable:
            return
        manifest = self.manifest(publication.manifest)
        partition = partition_of(manifest, publication.spec, place)
        self._kept.expect(manifest.key(partition), lambda: self._fetch_partition(manifest, partition))

    def _fetch_partition(self, manifest: Manifest, partition: Partition) -> Arrays:
        """Downloads a partition and reads it in the runner's child. Raises PartitionUnfit."""
        try:
            data = self._fetcher.get(partition.link, partition.digest, partition.bytes)
            return self._runner.read_partition(manifest, partition, data)
        except MarketError as error:
            raise PartitionUnfit(partition.name, error) from error


def select_rows(arrays: Arrays, rows: list[int]) -> dict[str, np.ndarray]:
    """Returns copies of these rows, in this order."""
    return {name: np.ascontiguousarray(array[rows]) for name, array in arrays.items()}
