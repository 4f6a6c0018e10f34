"""Rows that never leave this machine: the interface through which a task's computation reads them
(worker.features.private).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.manifest import Manifest, Partition
from gradmarket.runner import Runner

Taken = tuple[Partition, list[int]]


class StepRows(NamedTuple):
    """The rows of one step, piece by piece; those after the first `drawn` fill its batch and count as zeros."""

    pieces: Sequence[Taken]
    drawn: int


class StepCorrection(Protocol):
    """The correction added to each inner gradient of a task, and its update from the answer for the next round."""

    def correction(self, state: Arrays, names: tuple[str, ...]) -> Arrays:
        """Returns it by parameter. Raises Refused where the data that it is computed from is lost."""

    def answered(self, state: Arrays, correction: Arrays, change: Arrays) -> None:
        """Stores the basis of the next round's correction; `change` is the gradient part of the answer as sent."""


class HeldRows(Protocol):
    @property
    def manifest(self) -> Manifest: ...

    def partition(self, round_number: int) -> Partition:
        """Returns the partition of a round."""

    def rows(self, spec: JobSpec, round_number: int) -> list[int]:
        """Returns the rows of the round's partition that a task takes."""

    def read(self, partition: Partition, runner: Runner) -> Arrays:
        """Reads a partition in the runner's child. Raises PartitionUnfit."""

    def take(self, publication: Publication, counts: bool) -> Sequence[StepRows]:
        """Returns the next task's rows, step by step, for a job that bounds the privacy loss of each row.

        They are counted before if it `counts`. Raises Refused where they are spent.
        """

    def check_budget(self, publication: Publication) -> None:
        """Raises Refused where a task of such a job would exceed a row's privacy budget."""

    def open_correction(self, publication: Publication, number: int) -> StepCorrection | None:
        """Returns the correction of the round's steps, where the job corrects its holders' steps."""
