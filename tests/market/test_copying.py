"""A root at two places: the copy is found in either order of acceptance, and the copied worker never loses."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.audits.copying import (
    AcceptedAnswer,
    has_honest_coincidence,
    list_possible_originals,
    list_suspected_copies,
    to_audit,
)
from gradmarket.market.terms import Digest


def honest(round: int, index: int) -> Digest:
    return Digest(f"blake3:{round:032x}{index:032x}")


def at(place: int, root: Digest, right: bool | None = None, attempt: int = 0) -> AcceptedAnswer:
    return AcceptedAnswer(f"{place}-{attempt}", place // 3, place % 3, root, right)


def right(place: int) -> Digest:
    return honest(place // 3, place % 3)


def played(order: list[tuple[int, int]]) -> tuple[list[AcceptedAnswer], set[str]]:
    """Returns the answers at the end, and the convicted tasks; audits follow the rule, and are right.

    order: acceptances one after another, (place, the place whose honest answer is given).
    """
    book: dict[str, AcceptedAnswer] = {}

    def audit(answer: AcceptedAnswer) -> None:
        found = replace(answer, right=answer.root == honest(answer.round, answer.index))
        book[answer.task] = found
        for other in to_audit(found, book.values()):
            audit(other)

    for place, source in order:
        answer = book[f"{place}-0"] = at(place, right(source))
        for pointed in to_audit(answer, book.values()):
            audit(pointed)
    return list(book.values()), {
        answer.task for answer in book.values() if list_possible_originals(answer, book.values())
    }


def test_a_copy_is_found_whichever_was_accepted_first() -> None:
    for order in ([(0, 0), (1, 0)], [(1, 0), (0, 0)]):
        answers, convicted = played(order)
        assert convicted == {"1-0"}
        assert [answer.task for answer in answers if answer.right is False] == ["1-0"]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12, unique_by=lambda each: each[0]))
def test_no_honest_answer_is_convicted_and_no_copy_beside_another_stands(
    order: list[tuple[int, int]],
) -> None:
    answers, convicted = played(order)
    lies = {f"{place}-0" for place, source in order if place != source}
    assert convicted <= lies
    wrong = {answer.task for answer in answers if answer.right is False}
    assert {
        answer.task for answer in answers if answer.task in lies and list_suspected_copies(answer, answers)
    } <= wrong


@given(st.permutations(range(9)))
def test_honest_workers_are_never_pointed_at(places: list[int]) -> None:
    answers, convicted = played([(place, place) for place in places])
    assert not convicted
    assert all(answer.right is None for answer in answers), "nothing is audited for it"


def test_the_same_answer_to_another_attempt_is_honest_and_a_revoked_one_is_not() -> None:
    first = at(0, right(0))
    again = at(0, right(0), attempt=1)
    assert to_audit(again, [first]) == []
    lie = Digest("blake3:" + "f" * 64)
    assert to_audit(at(0, lie, attempt=1), [at(0, lie, right=False)]) == [at(0, lie, attempt=1)]


def test_where_honest_answers_coincide_nothing_is_pointed_at_any_more() -> None:
    same = right(0)
    book = [at(0, same, right=True), at(1, same, right=True)]
    assert has_honest_coincidence(book)
    assert to_audit(at(2, same), book) == []
    assert not has_honest_coincidence(book[:1])
    assert to_audit(at(2, same), book[:1]) == [at(2, same)]


def test_only_what_was_found_wrong_is_a_copy() -> None:
    original = at(0, right(0))
    for verdict, expected in ((None, []), (True, []), (False, [original])):
        assert list_possible_originals(at(1, right(0), right=verdict), [original]) == expected
    assert list_possible_originals(at(1, Digest("blake3:" + "e" * 64), right=False), [original]) == [], (
        "a lie of its own"
    )
