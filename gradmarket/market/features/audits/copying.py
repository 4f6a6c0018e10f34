"""Detects accepted answers that may be copies: one payload root at two places of a job, or a root found wrong before.

Nobody can copy an answer to its own task: commitments are sealed, and a root is published only when no attempt can
follow. A worker that will not compute can still send an existing answer: its own from an earlier round, another
worker's that was published or passed on, or a lie that was revoked. Where one replica decides a task, such an answer is
accepted. Honest answers to two tasks have different rows or parameters, so of two with one root at most one is honest.

Equality shows that there is a copy, but not which of the two it is: a copy may be accepted before its original. So it
convicts nobody. It causes a certain audit of the answer, and then of the answers equal to it. An answer counts as a
copy only where an audit found it wrong; the author of the original keeps its standing.

Honest answers do coincide in some jobs: a model that no longer learns, or tasks that all take the same rows. Two
answers found right at different places prove this, and then equal roots are ignored in that job.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gradmarket.market.terms import Digest


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    """An accepted answer. `right`: the result of its audit, None before one."""

    task: str
    round: int
    index: int
    root: Digest
    right: bool | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.round, self.index


def list_suspected_copies(answer: AcceptedAnswer, others: Iterable[AcceptedAnswer]) -> list[AcceptedAnswer]:
    """Returns the other answers with this one's root that honest work would not have made equal to it.

    These are of other places of the job, or were found wrong by an audit.
    """
    same = (other for other in others if other.root == answer.root and other.task != answer.task)
    return [other for other in same if other.place != answer.place or other.right is False]


def has_honest_coincidence(answers: Iterable[AcceptedAnswer]) -> bool:
    """Returns whether audits found equal honest answers at two places."""
    places_by_root: dict[Digest, set[tuple[int, int]]] = {}
    for answer in answers:
        if answer.right:
            places_by_root.setdefault(answer.root, set()).add(answer.place)
    return any(len(places) > 1 for places in places_by_root.values())


def to_audit(answer: AcceptedAnswer, others: Iterable[AcceptedAnswer]) -> list[AcceptedAnswer]:
    """Returns the answers to audit with certainty.

    That is `answer` itself where it is new; once it was found right or wrong, the answers equal to it that are not
    audited.
    """
    known = [*others]
    equal = list_suspected_copies(answer, known)
    if not equal or has_honest_coincidence([answer, *known]):
        return []
    return [answer] if answer.right is None else [other for other in equal if other.right is None]


def list_possible_originals(answer: AcceptedAnswer, others: Iterable[AcceptedAnswer]) -> list[AcceptedAnswer]:
    """Returns the answers that a wrong answer may be a copy of; nothing for an answer not found wrong."""
    return list_suspected_copies(answer, others) if answer.right is False else []
