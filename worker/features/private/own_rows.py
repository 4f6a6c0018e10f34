"""A holder's own rows for a private job: a packed dataset on this machine, checked against the job, and never sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes

from gradmarket.compute.held_rows import StepRows
from gradmarket.market import sampling
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.features.private.row_budget import build_row_spending
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.job_parts import PrivateData
from gradmarket.market.manifest import MANIFEST, Manifest, Partition, parse_manifest
from gradmarket.market.terms import blob_digest
from gradmarket.network import PartitionUnfit
from gradmarket.runner import Runner
from graphdoc.figures import Range
from worker.features.private.control_rounds import ControlRound, RoundsInMemory, RoundStore, control_round
from worker.features.private.row_uses import NO_BUDGET, CountedRows, RowBudget, RowUsesStore, UsesInMemory


@dataclass(frozen=True)
class OwnRows:
    """The partitions of a folder that `gradmarket data pack` wrote.

    `seed` decides which rows a step takes; it is secret, so that nobody can prove a guess of the rows by the published
    digest of an answer.
    """

    folder: Path
    manifest: Manifest
    seed: bytes
    counted: CountedRows
    """The selection of rows for a job that bounds the disclosure of each row."""
    rounds: RoundStore
    """The values that a job with control variates keeps from round to round."""

    @classmethod
    def opened(
        cls,
        folder: Path,
        uses: RowUsesStore | None = None,
        rounds: RoundStore | None = None,
        budget: RowBudget = NO_BUDGET,
    ) -> "OwnRows":
        """`uses` stores the uses of the rows, `rounds` the control variates; by default both only while this object
        lives. `budget` bounds the disclosure of a row to all jobs together.

        Raises Refused where the folder is no packed dataset.
        """
        again = "pack your rows with `gradmarket data pack ROWS --output FOLDER`, and name that folder"
        try:
            manifest = parse_manifest(read := (folder / MANIFEST).read_bytes())
        except (OSError, MarketError) as error:
            raise Refused(f"{folder} is no packed dataset: {error}", again) from error
        if not manifest.partitions:
            raise Refused(f"{folder} has no partition", again)
        counted = CountedRows(manifest, blob_digest(read), uses or UsesInMemory(), budget)
        return cls(folder, manifest, token_bytes(32), counted, rounds or RoundsInMemory())

    @property
    def count(self) -> int:
        return sum(partition.rows for partition in self.manifest.partitions)

    def check(self, spec: JobSpec, runner: Runner) -> None:
        """Raises Refused, naming the misfit, unless the job's tasks can be computed on these rows.

        Every partition is read in the runner's confined child.
        """
        if spec.private is None:
            raise Refused("the job's rows are published: it takes no dataset of a worker's own")
        self._check_kind(spec, spec.private)
        for partition in self.manifest.partitions:
            ranges = {name: (Range(0, one.classes, None),) for name, one in spec.private.inputs.items() if one.classes}
            bad = runner.check_partition(self.manifest, partition, self._load_partition_bytes(partition), ranges)
            if bad is not None:
                raise Refused(f"{partition.file}: {bad.describe()}")

    def _check_kind(self, spec: JobSpec, asked: PrivateData) -> None:
        own, inputs = self.manifest.batch(1), Manifest(inputs=asked.inputs, partitions=()).batch(1)
        for name in sorted({*own, *inputs}):
            if own.get(name) != inputs.get(name):
                read, has = _describe_row_kind(inputs.get(name)), _describe_row_kind(own.get(name))
                raise Refused(f"input {name}: the job reads {read}, the dataset has {has}")
        if self.count < asked.least_rows:
            raise Refused(f"the job takes holders of {asked.least_rows} rows or more; the dataset has {self.count}")
        if spec.step.by_chance:
            return
        for partition in self.manifest.partitions:
            if partition.rows < spec.step.rows:
                few = f"{partition.file} has {partition.rows} rows, and a step takes {spec.step.rows}"
                raise Refused(few, "pack it again with more --rows-per-partition")
        spending, slots = build_row_spending(spec), self.counted.slots(spec.step.rows)
        if spending is not None and slots < spending.slots:
            few = f"its partitions leave room for {slots} steps, and the job counts on {spending.slots}"
            raise Refused(few, "pack it again with more --rows-per-partition")

    def partition(self, round_number: int) -> Partition:
        """Returns the partition of a round: they take turns."""
        return self.manifest.partitions[round_number % len(self.manifest.partitions)]

    def rows(self, spec: JobSpec, round_number: int) -> list[int]:
        """Returns the rows of the round's partition that a task takes."""
        step = spec.step
        return sampling.draw_shuffled_rows(
            self.seed, round_number, 0, self.partition(round_number).rows, step.rows, step.moves
        )

    def take(self, publication: Publication, counts: bool) -> Sequence[StepRows]:
        return self.counted.take(publication) if counts else self.counted.peek(publication)

    def check_budget(self, publication: Publication) -> None:
        self.counted.afford(publication)

    def open_correction(self, publication: Publication, number: int) -> ControlRound | None:
        """Returns the round of this holder's control variates, where the job has any."""
        return control_round(self.rounds, publication, number)

    def read(self, partition: Partition, runner: Runner) -> Arrays:
        """Reads a partition in the runner's child. Raises PartitionUnfit."""
        try:
            return runner.read_partition(self.manifest, partition, self._load_partition_bytes(partition))
        except MarketError as error:
            raise PartitionUnfit(partition.name, error) from error

    def _load_partition_bytes(self, partition: Partition) -> bytes:
        path = self.folder / partition.file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise Refused(f"{path} cannot be read: {error}") from error
        if blob_digest(data) != partition.digest:
            raise Refused(f"{path} differs from its manifest: pack the dataset again")
        return data


def _describe_row_kind(kind: tuple[tuple[int, ...], str] | None) -> str:
    return "nothing" if kind is None else f"{kind[1]}{list(kind[0][1:])} a row"
