"""Answers what referees ask of answers that were computed here, beside other work: a worker's, or a panel auditor's.

A task is computed again, operation by operation, only once its referee asks; each hearing asks for three more runs at
most, between classes for two more with each later operation that is judged (disputes.careful_side).
"""

import threading
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
from gradmarket.market.signing import Domain, Signer
from gradmarket.market.terms import Address, Hash
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from worker.features.disputes.attended_answer import AttendedAnswer, LentCourse

Name = TypeVar("Name", bound=str)
LOOK_S: Final = 0.5
WAIT_S: Final = 15.0
"""Seconds that a request waits for the next question."""
STOP_S: Final = 10.0
MOST_ATTENDED: Final = 32
"""Answers whose traces are kept: of an earlier one it is made anew."""
REST_S: Final = 5.0


@dataclass(frozen=True)
class OwnAnswer:
    """An answer of this machine: `root` is its payload's. `parts_file`: as AttendedAnswer has it."""

    domain: Domain
    offer: Hash
    root: Hash
    address: Address
    sign: Signer
    referee: Address
    parts_file: Path


class HearingAttendance(ABC, Generic[Name]):
    """Listens to one market's referee in a thread of its own; answers have names."""

    refusals: ClassVar[tuple[type[MarketError], ...]] = ()
    """What the market answers to what it does not take: it is not brought again, unlike what was lost on its way."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._attended: dict[Name, AttendedAnswer] = {}
        self._lost: set[Name] = set()
        """Answers that do not come out again: they are computed no further time."""
        self._children = ExitStack()
        self._child: tuple[Name, TracedCourse] | None = None
        self._thread = threading.Thread(target=self._run_until_stopped, name="hearings", daemon=True)

    @abstractmethod
    def list_asked(self, wait_s: float) -> Iterable[tuple[Name, PutQuestion]]:
        """Returns the open questions; waits so long for one. Raises MarketError."""

    @abstractmethod
    def find_answer(self, name: Name, put: PutQuestion) -> OwnAnswer:
        """Raises NotFound where this machine has none."""

    @abstractmethod
    def open_task(self, name: Name) -> AbstractContextManager[TracedCourse]:
        """Opens the answer's task in a child. Raises MarketError."""

    @abstractmethod
    def bring(self, name: Name, reply: Reply) -> None:
        """Sends an answer. Raises MarketError."""

    @abstractmethod
    def list_attended(self) -> Collection[Name] | None:
        """Returns the answers that may be asked about now; None where that is not known, and it listens always."""

    @abstractmethod
    def report_progress(self, text: str, name: Name | None, reply: Reply | None = None) -> None:
        """Tells the owner what was said, or what could not be."""

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait_s: float = STOP_S) -> None:
        """Ends the thread; waits so long for what it is answering."""
        self.over.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def turn(self, wait_s: float = WAIT_S) -> int:
        """Answers what is asked; returns how many questions that were. Raises MarketError."""
        answered = 0
        for name, put in self.list_asked(wait_s):
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
        except MarketError as error:
            self.report_progress(f"Could not hear what a referee asks: {error}", None)
            self.over.wait(REST_S)

    def _answer(self, name: Name, put: PutQuestion) -> bool:
        """Answers one question; what cannot be answered is said once, and loses in time."""
        refused: tuple[type[Exception], ...] = (Refused, NotFound, RunnerFailed, *self.refusals)
        try:
            reply = self._attend(name, put).answer(put)
            self.bring(name, reply)
        except refused as error:
            self.report_progress(f"Could not answer the referee about {name}: {error}", name)
            if isinstance(error, RunnerFailed):
                self._close_child()
            self.over.wait(REST_S)
            return False
        self.report_progress(
            f"Answered question {put.number} of the referee about {name}: {put.question.asked}.", name, reply
        )
        return True

    def _attend(self, name: Name, put: PutQuestion) -> AttendedAnswer:
        """Returns the answer with its trace, which is made at the first question. Raises NotFound, Refused."""
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
            raise Refused("the task comes out otherwise than it was answered: there is nothing to stand by")
        lent = LentCourse(lambda: self._lend(name))

        def build_side() -> CarefulSide:
            side = Side(own.address, own.sign, trace.checkpoints, lent.detail, lent.show, lent.results)
            return CarefulSide(own.domain, own.offer, own.root, side, lent, own.referee)

        return AttendedAnswer(build_side, own.parts_file)

    def _lend(self, name: Name) -> TracedCourse:
        """Returns the answer's task in this machine's one child, which another answer may have had before."""
        if self._child is None or self._child[0] != name:
            self._close_child()
            self._child = name, self._children.enter_context(self.open_task(name))
        return self._child[1]

    def _close_child(self) -> None:
        self._child = None
        self._children.close()
