"""Rounds whose sum alone the service sees, not a worker's answer: the questions that the kernel asks the feature."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Final

from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Address
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work

RECEIPT: Final = 32 + 65
"""Bytes of a receipt, for which a holder is paid: the digest of its masked vector, and its signature."""


class RoundSum(ABC):
    """The worker of such a round is paid for a receipt, which states that its answer is in the sum."""

    @abstractmethod
    def list_shut_out(self, reader: RowReader, job: Job, number: int) -> Collection[Address]:
        """Called while workers are drawn; returns those that get no further task of the round."""

    @abstractmethod
    def find_receipt(self, reader: RowReader, job: Job, number: int, worker: Address) -> bytes | None:
        """Called before an upload; returns the payload it must be, None where no existing sum has the worker.

        It has RECEIPT bytes.
        """

    @abstractmethod
    def may_merge(self, reader: RowReader, job: Job, number: int) -> bool:
        """Called for the next round to merge; returns whether its sum exists, and each worker in it was
        paid or left.
        """

    @abstractmethod
    def replace_receipts(self, work: Work, job: Job, number: int, tasks: Sequence[Task], now: float) -> None:
        """Called in the transaction that begins the merge; puts the blob of the round's mean in place of receipts."""

    @abstractmethod
    def count_noised_rounds(self, reader: RowReader, job_id: str, spec: JobSpec, merged: int) -> float:
        """Returns the number of rounds of least noise that the job's merged rounds have spent."""


def find_round_sum(reader: RowReader, spec: JobSpec) -> RoundSum | None:
    """Returns the feature that sums the job's rounds; None where each answer is seen. Admission refuses a job that
    lacks it.
    """
    if spec.secure is None:
        return None
    found: RoundSum = next(one.round_sum for one in reader.session.info["features"] if one.round_sum is not None)
    return found


def count_noised_rounds(reader: RowReader, job_id: str, spec: JobSpec, merged: int) -> float:
    """Returns the rounds that privacy counts of `merged` ones."""
    summed = None if spec.private is None or spec.privacy is None else find_round_sum(reader, spec)
    return merged if summed is None else summed.count_noised_rounds(reader, job_id, spec, merged)
