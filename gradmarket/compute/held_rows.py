"""Rows that never leave this machine: what the computation of a task asks of who has them (worker.features.private)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gradmarket.market.data.manifest import Manifest, Partition
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import JobSpec, Publication
from gradmarket.runner import Runner

Taken = tuple[Partition, list[int]]


class StepRows(NamedTuple):
    """The rows of one step, piece by piece; those after the first `drawn` fill its batch and count as zeros."""

    pieces: Sequence[Taken]
    drawn: int


class StepCorrection(Protocol):
    """What is added to each inner gradient of a task, and kept of its answer for the next round."""

    def correction(self, state: Arrays, names: tuple[str, ...]) -> Arrays:
        """Returns it by parameter. Raises Refused where what it follows from is lost."""

    def answered(self, state: Arrays, correction: Arrays, change: Arrays) -> None:
        """Keeps what the next round's follows from: `change` is the gradient part of the answer as sent."""


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
        """Returns the next task's rows of a job that bounds what is told of each, step by step.

        They are counted before if it `counts`. Raises Refused where they are spent.
        """

    def check_budget(self, publication: Publication) -> None:
        """Raises Refused where a task of such a job would tell more of a row than it may."""

    def open_correction(self, publication: Publication, number: int) -> StepCorrection | None:
        """Returns what corrects the steps of the job's round, where it has its holders' steps corrected."""
