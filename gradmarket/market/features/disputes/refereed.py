"""Finds the answer that stands where a referee hears those that differ: a tournament of answers, two sides at a time.
Pure.

A side that loses a hearing is out. An answer stands as long as one side that gave it is not out, so a silent colluder
takes no honest answer with it. An honest side never loses a hearing (features.disputes), so an answer that stands alone
is the honest one where one exists. Each hearing ends with a side out, or is between two that are not heard again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from gradmarket.market.terms import Address, Digest


class Heard(NamedTuple):
    """A hearing that is over: both sides, and the sides that lost; none where the referee could not decide.

    `roots`: of the answers that it was about, where they are to be checked.
    """

    sides: tuple[Address, Address]
    wrong: Collection[Address]
    roots: tuple[Digest, Digest] | None = None


def find_standing_root(answers: Mapping[Address, Digest], heard: Iterable[Heard]) -> Digest | None:
    """Returns the one root that stands; None where there are more, or none. `answers`: by workers or auditors."""
    roots = {answers[side] for side in list_standing(answers, heard)}
    return roots.pop() if len(roots) == 1 else None


def list_standing(answers: Mapping[Address, Digest], heard: Iterable[Heard]) -> list[Address]:
    """Returns the sides that have lost no hearing, in order."""
    out = {side for each in heard for side in each.wrong}
    return sorted(answers.keys() - out)


def choose_sides(answers: Mapping[Address, Digest], heard: Collection[Heard]) -> tuple[Address, Address] | None:
    """Returns the next two to be heard; None where one answer stands, or no two are left to be heard."""
    before = {frozenset(each.sides) for each in heard}
    pairs = combinations(list_standing(answers, heard), 2)
    apart = ((one, other) for one, other in pairs if answers[one] != answers[other])
    return next((pair for pair in apart if frozenset(pair) not in before), None)


def find_heard_faults(answers: Mapping[Address, Digest], heard: Iterable[Heard]) -> Iterator[str]:
    """Finds hearings that are none of the task's: of others, of equal or other answers, of one out, or held twice."""
    before, out = set[frozenset[Address]](), set[Address]()
    for each in heard:
        one, other = each.sides
        if one not in answers or other not in answers or answers[one] == answers[other]:
            yield f"{one} and {other} did not answer it differently, and were heard"
        elif each.roots not in (None, (answers[one], answers[other])):
            yield f"{one} and {other} were heard about other answers than they gave"
        if out & {one, other} or frozenset(each.sides) in before:
            yield f"{one} and {other} were heard, and one of them was out, or both were heard before"
        if not set(each.wrong) <= {one, other}:
            yield f"the hearing of {one} and {other} has another loser"
        before.add(frozenset(each.sides))
        out |= set(each.wrong)
