"""Which accepted answers point at one another: one payload root at two places of a job, or a root found wrong before.

Nobody copies an answer to its own task: commitments are sealed, and a root is told once no attempt can follow. What is
left to a worker that will not compute is an answer that is there already: its own of a round before, another's that was
told or handed on, a lie that was revoked. Where one replica decides a task, such an answer is accepted. Honest answers
to two tasks have different rows or parameters, so two of them with one root are at most one honest answer and a copy.

Equality says that there is a copy, never which of the two it is: a copy may be accepted before what it was made from.
So it convicts nobody. It has the answer audited, with certainty, and after it those that it is equal to. Only an answer
that an audit found wrong is a copy, and who was copied stands.

Honest answers do coincide in some jobs: a model that no longer learns, tasks that all take the same rows. Two of them
found right at different places prove it, and that job's answers are pointed at no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gradmarket.market.terms import Digest


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    """An accepted answer. `right`: what an audit found, or None."""

    task: str
    round: int
    index: int
    root: Digest
    right: bool | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.round, self.index


def alike(answer: AcceptedAnswer, others: Iterable[AcceptedAnswer]) -> list[AcceptedAnswer]:
    """Those of the others that honest work makes unlike this one and that have its root."""
    same = (other for other in others if other.root == answer.root and other.task != answer.task)
    return [other for other in same if other.place != answer.place or other.right is False]


def coincide(answers: Iterable[AcceptedAnswer]) -> bool:
    """Whether honest answers at two places were found equal."""
    found: dict[Digest, set[tuple[int, int]]] = {}
    for answer in answers:
        if answer.right:
            found.setdefault(answer.root, set()).add(answer.place)
    return any(len(places) > 1 for places in found.values())


def to_audit(answer: AcceptedAnswer, others: Iterable[AcceptedAnswer]) -> list[AcceptedAnswer]:
    """What is audited for certain: the newly accepted `answer`; once it is found right or wrong, what it points at."""
    known = [*others]
    pointed = alike(answer, known)
    if not pointed or coincide([answer, *known]):
        return []
    return [answer] if answer.right is None else [other for other in pointed if other.right is None]


def copied(answer: AcceptedAnswer, others: Iterable[AcceptedAnswer]) -> list[AcceptedAnswer]:
    """What an answer that was found wrong may be a copy of; nothing for any other answer."""
    return alike(answer, others) if answer.right is False else []
