"""Checks of a side before it answers: a referee that asks for more than a dispute needs gets nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.questions import (
    MOST_LATER,
    DisputeQuestion,
    Question,
    Reply,
    count_questions,
)
from gradmarket.market.features.disputes.referee import BEFORE, Course
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.features.log.merkle import count_levels, count_nodes
from gradmarket.market.signing import Domain, check_struct_signature
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.hearing_messages import PutInHearing, name_dispute


@dataclass(frozen=True)
class PutQuestion:
    """Question `number` of a dispute between two sides with these roots, to be answered `until` that Unix time."""

    sides: Sequence[Address]
    roots: Sequence[Hash]
    number: int
    question: Question
    until: int
    signature: bytes

    @classmethod
    def read(cls, put: PutInHearing) -> Self:
        question = Question(put.asked, put.level, put.place)
        return cls(put.sides, put.roots, put.number, question, put.until, put.signature)


@dataclass
class CarefulSide:
    """Answers one dispute of one referee: each question once, in order, and at most one that needs the task computed
    again."""

    domain: Domain
    offer: Hash
    root: Hash
    """The root of its own payload."""
    side: Side
    course: Course
    referee: Address
    dispute: Hash | None = None
    last: int = -1
    shown: list[int] = field(default_factory=list)
    """Operations whose values it has shown, in order."""
    resulted: list[int] = field(default_factory=list)
    """The operations among them whose results it has shown too."""
    part: int | None = None
    """The part that the current questions are about."""

    def answer(self, put: PutQuestion) -> Reply:
        """Returns the signed answer. Raises Refused where the question is none of this dispute, or one too many."""
        dispute = self.name_dispute(put.sides, put.roots)
        struct = DisputeQuestion(dispute, put.number, put.question.digest(dispute, put.number), put.until)
        check_struct_signature(self.domain, struct, put.signature, self.referee)
        self._check_question(put.number, put.question)
        reply = self.side.answer(self.domain, self.course, dispute, put.number, put.question)
        self.dispute, self.last = dispute, put.number
        if put.question.asked in ("values", "results"):
            (self.shown if put.question.asked == "values" else self.resulted).append(put.question.place)
        self.part = put.question.place if put.question.asked == "part" else self.part
        return reply

    def resume(self, part: int) -> None:
        """Goes on within a part whose operations it has committed to before, as a side that was started anew."""
        self.side.look_into(part)
        self.part = part

    def name_dispute(self, sides: Sequence[Address], roots: Sequence[Hash]) -> Hash:
        """Raises Refused where it is not about this side's answer, or another dispute than before."""
        if (self.side.address, self.root) not in list(zip(sides, roots, strict=True)):
            raise Refused(f"the referee hears no dispute about the answer of {self.side.address}")
        dispute = name_dispute(self.offer, sides, roots)
        if self.dispute not in (None, dispute):
            raise Refused("the referee hears another dispute now")
        return dispute

    def _check_question(self, number: int, question: Question) -> None:
        parts = self.course.parts
        leaves = parts if self.part is None else self.course.count(self.part)
        least, most = (1, count_levels(leaves)) if question.asked == "children" else (0, 0)
        if not self.last < number < self._count_questions():
            raise Refused("the referee asks a question again, or more than a dispute has")
        if question.asked == "entry":
            most = 0 if self.part is None else self.course.lasting(self.part) - 1
        if not least <= question.level <= most or not 0 <= question.place < count_nodes(
            leaves, question.level if least else 0
        ):
            raise Refused("the referee asks about a place that the task does not have")
        if question.asked == "values" and self.shown:
            self._check_later(question.place)
        if question.asked == "results" and [*self.resulted, question.place] != self.shown:
            raise Refused("the referee asks for results of an operation whose values it did not ask for just before")
        misplaced = ("entry", "values", "results") if self.part is None else ("root", "part")
        if question.asked in misplaced:
            raise Refused("the referee asks about two parts, or for values of none")
        if question.asked == "entry" and not self._is_given_by_operation(question):
            raise Refused("the referee asks for an entry that no operation gives")

    def _count_questions(self) -> int:
        parts = self.course.parts
        return count_questions(parts, max(map(self.course.count, (0, 1, parts - 1))), MOST_LATER)

    def _check_later(self, place: int) -> None:
        """Raises Refused unless the operation comes after one whose results were judged, and is not one too many."""
        if self.resulted != self.shown or place <= self.shown[-1]:
            raise Refused("the referee asks for the values of two operations")
        if len(self.shown) > MOST_LATER:
            raise Refused(f"the referee asks for the values of more than {1 + MOST_LATER} operations")

    def _is_given_by_operation(self, question: Question) -> bool:
        part = self.part or 0
        if question.place != self.course.count(part) - 1:
            return False
        return self.course.describe(part, question.place).values[question.level][0] != BEFORE
