"""A side answers each question of its own dispute once, and nothing else, whoever signs it."""

from dataclasses import replace
from functools import cache

import pytest

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import (
    MOST_LATER,
    DisputeQuestion,
    Question,
    count_questions,
)
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Hash
from gradmarket.market.wire.hearing_messages import name_dispute
from gradmarket.runner.features.disputes.traced.course import PlanCourse
from tests.kit.disputes import DOMAIN, HONEST, LIAR, OFFER, side_of
from tests.kit.traced import SmallTask, parse_step, small_cnn

SIDES = address_of(HONEST), address_of(LIAR)
ROOTS = Hash(b"\4" * 32), Hash(b"\5" * 32)
MANY = 10_000


@cache
def task() -> SmallTask:
    return small_cnn(parse_step(rows=4))


def careful() -> CarefulSide:
    side = side_of(HONEST, task(), task().trace)
    return CarefulSide(DOMAIN, OFFER, ROOTS[0], side, PlanCourse(task().operations.plan), address_of(LIAR))


def put(number: int, question: Question, roots: tuple[Hash, Hash] = ROOTS) -> PutQuestion:
    dispute = name_dispute(OFFER, SIDES, roots)
    struct = DisputeQuestion(dispute, number, question.digest(dispute, number), 60)
    return PutQuestion(SIDES, roots, number, question, 60, sign_digest(LIAR, digest_struct(DOMAIN, struct)))


def test_a_careful_side_answers_in_order_and_shows_one_operation_s_values() -> None:
    side = careful()
    for number, question in enumerate(
        [Question("root"), Question("children", 1, 0), Question("part", 0, 1), Question("values", 0, 3)]
    ):
        assert side.answer(put(number, question)).number == number
    with pytest.raises(Refused, match="two operations"):
        side.answer(put(4, Question("values", 0, 4)))
    with pytest.raises(Refused, match="two parts"):
        side.answer(put(4, Question("part", 0, 1)))


def test_a_careful_side_shows_a_bounded_number_of_later_operations_in_order() -> None:
    side, number = careful(), iter(range(99))
    side.side.show = side.side.results = lambda _part, _leaf: [b""]

    def put_questions(*asked_: Question) -> None:
        for each in asked_:
            side.answer(put(next(number), each))

    put_questions(Question("root"), Question("part", 0, 1))
    for leaf in range(1 + MOST_LATER):
        put_questions(Question("values", 0, leaf), Question("results", 0, leaf))
        with pytest.raises(Refused, match="two operations"):
            put_questions(Question("values", 0, leaf))
    with pytest.raises(Refused, match=f"more than {1 + MOST_LATER} operations"):
        put_questions(Question("values", 0, 1 + MOST_LATER))


@pytest.mark.parametrize(
    ("asked_", "why"),
    [
        (put(1, Question("root")), "again"),
        (put(count_questions(MANY, MANY, MOST_LATER), Question("root")), "more than"),
        (put(2, Question("children", 0, 0)), "place"),
        (put(2, Question("children", 60, 0)), "place"),
        (put(2, Question("leaf", 0, MANY)), "place"),
        (put(2, Question("values")), "values of none"),
        (put(2, Question("leaf"), (ROOTS[0], Hash(b"\6" * 32))), "another dispute"),
        (put(2, Question("leaf"), (ROOTS[1], ROOTS[0])), "no dispute about"),
        (replace(put(2, Question("leaf")), until=61), "instead of"),
    ],
)
def test_a_careful_side_refuses_needless_questions(asked_: PutQuestion, why: str) -> None:
    side = careful()
    side.answer(put(1, Question("root")))
    with pytest.raises(Refused, match=why):
        side.answer(asked_)
