"""The parties whose answers to a task a referee hears: the task's workers, or others that a feature gave it to."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gradmarket.market.terms import Address, Digest
from requester.context import Context
from requester.store.in_hand import TaskInHand
from requester.store.tables import Task
from requester.store.work import RowReader, Work


class HeardAnswer(NamedTuple):
    root: Digest
    determinism_class: str


class AnswersLeft(NamedTuple):
    """The parties that lost no hearing, and their one answer; no root where they have several, or no party stands."""

    sides: Collection[Address]
    root: Digest | None


class HearingParty(ABC):
    """`run`: the run of the task's audit in which a party answered; None for its workers."""

    @abstractmethod
    def load_answers(self, reader: RowReader, task: Task, run: int | None) -> Mapping[Address, HeardAnswer]:
        """Returns the answers that differ; none once no ruling on them is awaited any more."""

    @abstractmethod
    def may_speak(self, reader: RowReader, task_id: str, run: int | None, side: Address, caller: str) -> bool:
        """Returns whether the caller, a worker or an operator of auditors, is that side."""

    @abstractmethod
    def settle(self, context: Context, work: Work, hand: TaskInHand, run: int | None, left: AnswersLeft) -> None:
        """Called in the transaction that holds the task, once no pair of standing parties is left to hear."""
