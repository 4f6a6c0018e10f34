"""An answer of this worker that referees ask about: how far its hearings are, whichever task's child is open now."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import Question, Reply
from gradmarket.market.features.disputes.referee import Course, CourseOperation
from gradmarket.market.terms import Hash
from worker import durable

MOST_HEARINGS: Final = 16
"""Hearings of one answer in which this worker takes part: a market may not have it computed again for ever."""
BEFORE_PARTS: Final = ("root", "part")


class OpenedCourse(Course, Protocol):
    """A task that a child of this machine traces again (disputes.side)."""

    def detail(self, part: int) -> Sequence[bytes]: ...

    def show(self, part: int, leaf: int) -> Sequence[bytes]: ...

    def results(self, part: int, leaf: int) -> Sequence[bytes]: ...


@dataclass(frozen=True)
class LentCourse:
    """A course whose child may be another one at each question: this machine has one at a time."""

    lend: Callable[[], OpenedCourse]

    @property
    def parts(self) -> int:
        return self.lend().parts

    def count(self, part: int) -> int:
        return self.lend().count(part)

    def lasting(self, part: int) -> int:
        return self.lend().lasting(part)

    def number(self, part: int, leaf: int) -> int:
        return self.lend().number(part, leaf)

    def describe(self, part: int, leaf: int) -> CourseOperation:
        return self.lend().describe(part, leaf)

    def answer_leaf(self, root: Hash) -> bytes:
        return self.lend().answer_leaf(root)

    def detail(self, part: int) -> Sequence[bytes]:
        return self.lend().detail(part)

    def show(self, part: int, leaf: int) -> Sequence[bytes]:
        return self.lend().show(part, leaf)

    def results(self, part: int, leaf: int) -> Sequence[bytes]:
        return self.lend().results(part, leaf)


@dataclass
class AttendedAnswer:
    """`parts_file` has which part each hearing is about, once that was asked: a restarted worker goes on there."""

    build_side: Callable[[], CarefulSide]
    parts_file: Path
    _sides: dict[Hash, CarefulSide] = field(default_factory=dict)
    """By the hearing's name."""
    _last: tuple[tuple[Hash, int, Question], Reply] | None = None
    """What was answered last, for a question that comes again since its answer was lost."""

    def answer(self, put: PutQuestion) -> Reply:
        """Raises Refused where the question is none of its hearing's, or its hearings are too many."""
        fresh = self.build_side()
        name = fresh.name_dispute(put.sides, put.roots)
        asked = name, put.number, put.question
        if self._last is not None and self._last[0] == asked:
            return self._last[1]
        if name not in self._sides:
            self._begin(name, fresh, put.question)
        reply = self._sides[name].answer(put)
        if put.question.asked == "part":
            parts = self._read_parts() | {name.hex(): put.question.place}
            durable.write_file_atomically(self.parts_file, json.dumps(parts).encode(), synced=False)
        self._last = asked, reply
        return reply

    def _begin(self, name: Hash, side: CarefulSide, question: Question) -> None:
        if len(self._sides) == MOST_HEARINGS:
            raise Refused(f"the market has had {MOST_HEARINGS} hearings about one answer")
        part = self._read_parts().get(name.hex())
        if part is not None and question.asked not in BEFORE_PARTS:
            side.resume(part)
        self._sides[name] = side

    def _read_parts(self) -> dict[str, int]:
        try:
            parts: dict[str, int] = json.loads(self.parts_file.read_bytes())
        except (FileNotFoundError, ValueError):  # none yet, or cut short by a power cut
            return {}
        return parts
