"""Rounds of which the service sees a sum and no answer of its own: the questions that the kernel asks the feature."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Final

from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Address
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work

RECEIPT: Final = 32 + 65
"""Bytes of what a holder is paid for: the digest of its masked vector, and its signature."""


class RoundSum(ABC):
    """The worker of such a round is paid for a receipt, which states that its answer is in the sum."""

    @abstractmethod
    def list_shut_out(self, reader: RowReader, job: Job, number: int) -> Collection[Address]:
        """Called while workers are drawn; returns those that get no task of the round any more."""

    @abstractmethod
    def find_receipt(self, reader: RowReader, job: Job, number: int, worker: Address) -> bytes | None:
        """Called before an upload; returns what the payload must be, None where the worker is in no sum that is there.

        It has RECEIPT bytes.
        """

    @abstractmethod
    def may_merge(self, reader: RowReader, job: Job, number: int) -> bool:
        """Called for the next round to merge; returns whether its sum is there, and all in it were paid or left."""

    @abstractmethod
    def replace_receipts(self, work: Work, job: Job, number: int, tasks: Sequence[Task], now: float) -> None:
        """Called in the transaction that begins the merge; puts the blob of the round's mean in place of receipts."""

    @abstractmethod
    def count_noised_rounds(self, reader: RowReader, job_id: str, spec: JobSpec, merged: int) -> float:
        """Returns how many rounds of the least noise the job's merged rounds have spent."""


def find_round_sum(reader: RowReader, spec: JobSpec) -> RoundSum | None:
    """Returns what sums the job's rounds; None where each answer is seen. Admission refuses a job that lacks it."""
    if spec.secure is None:
        return None
    found: RoundSum = next(one.round_sum for one in reader.session.info["features"] if one.round_sum is not None)
    return found


def count_noised_rounds(reader: RowReader, job_id: str, spec: JobSpec, merged: int) -> float:
    """Returns the rounds that privacy counts of so many merged ones."""
    summed = None if spec.private is None or spec.privacy is None else find_round_sum(reader, spec)
    return merged if summed is None else summed.count_noised_rounds(reader, job_id, spec, merged)
