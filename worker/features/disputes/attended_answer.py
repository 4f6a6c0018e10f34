"""An answer of this machine in referees' hearings: the state of each hearing, whichever task's child is open now."""

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
from gradmarket.market.wire.hearing_messages import MOST_SAID
from worker import durable

MOST_HEARINGS: Final = 16
"""The most hearings of one answer with this machine: a market may not have it computed again for ever."""


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
    """`parts_file` has the part of each hearing, with the question that chose it: a restarted machine resumes there.

    A question may come again, since its answer was lost, or its service was restored: the reply is then the same.
    """

    build_side: Callable[[], CarefulSide]
    parts_file: Path
    _sides: dict[Hash, CarefulSide] = field(default_factory=dict)
    """By the hearing's name."""
    _begun: int = 0
    _said: dict[tuple[Hash, int, Question], Reply] = field(default_factory=dict)
    """All short answers, and the last one."""

    def answer(self, put: PutQuestion) -> Reply:
        """Returns the reply. Raises Refused if the question is none of its hearing's, or at too many hearings."""
        fresh = self.build_side()
        name = fresh.name_dispute(put.sides, put.roots)
        asked = name, put.number, put.question
        if asked in self._said:
            return self._said[asked]
        if name not in self._sides or put.number <= self._sides[name].last:
            self._begin(name, fresh, put)
        reply = self._sides[name].answer(put)
        if put.question.asked == "part":
            parts = self._read_parts() | {name.hex(): (put.number, put.question.place)}
            durable.write_file_atomically(self.parts_file, json.dumps(parts).encode(), synced=False)
        self._said = {key: one for key, one in self._said.items() if len(one.said) <= MOST_SAID} | {asked: reply}
        return reply

    def _begin(self, name: Hash, side: CarefulSide, put: PutQuestion) -> None:
        if self._begun == MOST_HEARINGS:
            raise Refused(f"the market held {MOST_HEARINGS} hearings about one answer")
        number, part = self._read_parts().get(name.hex(), (put.number, 0))
        if put.number > number:
            side.resume(part)
        self._sides[name] = side
        self._begun += 1

    def _read_parts(self) -> dict[str, tuple[int, int]]:
        try:
            parts: dict[str, tuple[int, int]] = json.loads(self.parts_file.read_bytes())
        except (FileNotFoundError, ValueError):  # none yet, or cut short by a power cut
            return {}
        return parts
