"""Answers referees' questions about answers computed here, beside other work: a worker's, or a panel auditor's.

A task is computed again, operation by operation, only once its referee asks; each hearing needs three more runs at
most, between classes two more with each later operation that is judged (disputes.careful_side).
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from gradmarket.market.errors import MarketError, NotFound, Refused, RunnerFailed
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import Reply
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.messages import Offer
from gradmarket.market.signing import Domain, Signer, digest_struct
from gradmarket.market.terms import Address, Hash, TaskId
from gradmarket.market.wire.hearing_messages import HearingReceipt
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from worker.features.disputes.attended_answer import AttendedAnswer, LentCourse
from worker.features.disputes.kept_receipts import build_receipt, keep_receipt

Name = TypeVar("Name", bound=str)
LOOK_S: Final = 0.5
WAIT_S: Final = 15.0
"""Seconds that a request waits for the next question."""
STOP_S: Final = 10.0
MOST_ATTENDED: Final = 32
"""The number of answers whose traces are kept: an earlier one's is made anew."""
REST_S: Final = 5.0


@dataclass(frozen=True)
class OwnAnswer:
    """An answer of this machine to a task: `root` is its payload's. `parts_file`: as in AttendedAnswer.
    `receipts_file`: of the job's hearings."""

    domain: Domain
    task: TaskId
    offer: Offer
    root: Hash
    address: Address
    sign: Signer
    referee: Address
    parts_file: Path
    receipts_file: Path


class HearingAttendance(ABC, Generic[Name]):
    """Listens to one market's referee in a thread of its own; answers have names."""

    refusals: ClassVar[tuple[type[MarketError], ...]] = ()
    """The market's refusals: a refused answer is not brought again, unlike one lost on its way."""

    def __init__(self) -> None:
        self.over, self.clock = threading.Event(), time.time
        self._attended: dict[Name, AttendedAnswer] = {}
        self._lost: set[Name] = set()
        """Answers that failed to come out again: they are not computed further."""
        self._children = ExitStack()
        self._child: tuple[Name, TracedCourse] | None = None
        self._thread = threading.Thread(target=self._run_until_stopped, name="hearings", daemon=True)

    @abstractmethod
    def list_questions(self, wait_s: float) -> Iterable[tuple[Name, PutQuestion]]:
        """Returns the open questions; waits `wait_s` for one. Raises MarketError."""

    @abstractmethod
    def find_answer(self, name: Name, put: PutQuestion) -> OwnAnswer:
        """Returns this machine's answer. Raises NotFound where it has none."""

    @abstractmethod
    def open_task(self, name: Name) -> AbstractContextManager[TracedCourse]:
        """Opens the answer's task in a child. Raises MarketError."""

    @abstractmethod
    def bring(self, name: Name, reply: Reply) -> HearingReceipt:
        """Sends an answer; returns its receipt. Raises MarketError."""

    @abstractmethod
    def list_attended(self) -> Collection[Name] | None:
        """Returns the answers that may be in question now; None where that is unknown, and it always listens."""

    @abstractmethod
    def report_progress(self, text: str, name: Name | None, reply: Reply | None = None) -> None:
        """Reports to the owner a reply, or why none was possible."""

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait_s: float = STOP_S) -> None:
        """Ends the thread; waits `wait_s` for the answer under way."""
        self.over.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def turn(self, wait_s: float = WAIT_S) -> int:
        """Answers the open questions; returns their number. Raises MarketError."""
        answered = 0
        for name, put in self.list_questions(wait_s):
            if self.over.is_set():
                break
            if name not in self._lost:
                answered += self._answer(name, put)
            elif not answered:
                self.over.wait(REST_S)
        return answered

    def _run_until_stopped(self) -> None:
        with self._children:
            while not self.over.wait(LOOK_S):
                while self.list_attended() != set() and not self.over.is_set():
                    self._turn_patiently()
                self._attended.clear()
                self._close_child()

    def _turn_patiently(self) -> None:
        try:
            if not self.turn() and self.list_attended() is None:
                self._close_child()
        except (MarketError, OSError, ValueError, LookupError, ArithmeticError) as error:  # whatever a question led to
            self.report_progress(f"Could not hear what a referee asks: {error}", None)
            self.over.wait(REST_S)

    def _answer(self, name: Name, put: PutQuestion) -> bool:
        """Answers one question; an impossible answer is reported once, and loses in time."""
        refused: tuple[type[Exception], ...] = (Refused, NotFound, RunnerFailed, *self.refusals)
        try:
            reply, began = self._attend(name, put).answer(put), self.clock()
            receipt = self.bring(name, reply)
        except refused as error:
            self.report_progress(f"Could not answer the referee about {name}: {error}", name)
            if isinstance(error, RunnerFailed):
                self._close_child()
            self.over.wait(REST_S)
            return False
        self.report_progress(
            f"Answered question {put.number} of the referee about {name}: {put.question.asked}.", name, reply
        )
        self._keep_receipt(name, put, reply, receipt, (began, self.clock()))
        return True

    def _keep_receipt(
        self, name: Name, put: PutQuestion, reply: Reply, receipt: HearingReceipt, sent: tuple[float, float]
    ) -> None:
        """Keeps the receipt of an answer that was brought; on a full disk the answer counts all the same."""
        try:
            own = self.find_answer(name, put)
            kept = build_receipt(own.domain, own.task, own.offer, put, reply, receipt)
            keep_receipt(own.receipts_file, own.domain, own.referee, kept, sent)
        except (OSError, MarketError) as error:
            self.report_progress(f"Could not keep the receipt of an answer about {name}: {error}", name)

    def _attend(self, name: Name, put: PutQuestion) -> AttendedAnswer:
        """Returns the answer with its trace, made at the first question. Raises NotFound, Refused."""
        if name not in self._attended:
            opened = self._open(name, self.find_answer(name, put))
            still = self.list_attended()
            kept = list(self._attended.items())[-MOST_ATTENDED:]
            self._attended = {one: each for one, each in kept if still is None or one in still} | {name: opened}
        return self._attended[name]

    def _open(self, name: Name, own: OwnAnswer) -> AttendedAnswer:
        course = self._lend(name)
        trace = course.runner.trace(course.inputs)
        if trace.root != own.root:
            self._lost.add(name)
            raise Refused("the task computes to another answer than was given: there is nothing to defend")
        lent, offer = LentCourse(lambda: self._lend(name)), digest_struct(own.domain, own.offer)

        def build_side() -> CarefulSide:
            side = Side(own.address, own.sign, trace.checkpoints, lent.detail, lent.show, lent.results)
            return CarefulSide(own.domain, offer, own.root, side, lent, own.referee)

        return AttendedAnswer(build_side, own.parts_file)

    def _lend(self, name: Name) -> TracedCourse:
        """Returns the answer's task in this machine's one child, which another answer may have used before."""
        if self._child is None or self._child[0] != name:
            self._close_child()
            self._child = name, self._children.enter_context(self.open_task(name))
        return self._child[1]

    def _close_child(self) -> None:
        self._child = None
        self._children.close()
