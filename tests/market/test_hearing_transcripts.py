"""A hearing written down is played again by anybody: each lie of the service about it is found."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.questions import (
    OVER,
    DisputeAnswer,
    DisputeQuestion,
    Question,
    Reply,
    digest_reply,
)
from gradmarket.market.features.disputes.referee import Referee
from gradmarket.market.features.disputes.transcript import find_ruling_fault, find_transcript_faults, terms_of
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Hash
from gradmarket.market.wire.hearing_messages import (
    AskedInHearing,
    PublishedHearing,
    SaidInHearing,
    SignedRuling,
    build_ruling,
)
from gradmarket.market.wire.poll import digest_of
from gradmarket.runner.features.disputes.traced.course import PlanCourse, redo_operation
from tests.kit.disputes import ANSWER_S, DOMAIN, HONEST, LIAR, OFFER, Ask, Lie, answer_as, hear_dispute, side_of
from tests.kit.disputes import terms_of as kit_terms
from tests.worker.test_dispute_hearing import lie_about, task

REFEREE = PrivateKey(b"\3" * 32)
ANN, BEN = address_of(HONEST), address_of(LIAR)
Change = Callable[[PublishedHearing], PublishedHearing]


def course() -> PlanCourse:
    return PlanCourse(task().operations.plan)


def redo(leaf: int, inputs: Sequence[bytes]) -> bytes:
    return redo_operation(task().operations, leaf, inputs)


def rule(hearing: PublishedHearing, *wrong: str, leaf: int | None = None, why: str = "so") -> PublishedHearing:
    """Signed by the referee, whatever it is."""
    dispute = terms_of(DOMAIN, OFFER, hearing).dispute
    struct = build_ruling(dispute, hearing.sides, frozenset(wrong), leaf, why)
    signature = sign_digest(REFEREE, digest_struct(DOMAIN, struct))
    ruling = SignedRuling(wrong=tuple(sorted(wrong)), leaf=leaf, why=why, signature=signature)
    return hearing.model_copy(update={"ruling": ruling})


def write_down(lie: Lie, silent_at: int | None = None) -> PublishedHearing:
    """The hearing of an honest side and a liar, which is silent from a question on."""
    terms, asked = kit_terms(task(), lie), list[AskedInHearing]()
    referee = Referee(terms, course(), 0)
    honest, liar = side_of(HONEST, task(), task().trace), side_of(LIAR, task(), lie.trace)

    def listen(ask: Ask) -> Ask:
        def answer(question: DisputeQuestion, what: Question) -> Iterator[Reply]:
            for reply in ask(question, what):
                if silent_at is not None and reply.side == liar.address and question.number >= silent_at:
                    return
                if len(asked) == question.number:
                    signature = sign_digest(REFEREE, digest_struct(DOMAIN, question))
                    fields: dict[str, Any] = {"asked": what.asked, "level": what.level, "place": what.place}
                    asked.append(AskedInHearing(**fields, until=question.until, signature=signature))
                said = SaidInHearing(
                    side=reply.side,
                    said=digest_reply(reply.said),
                    signature=reply.signature,
                    size=len(reply.said),
                    at=0,
                    body="0x" + reply.said.hex(),
                )
                asked[-1] = asked[-1].model_copy(update={"answers": (*asked[-1].answers, said)})
                yield reply

        return answer

    asks = {
        honest.address: listen(answer_as(honest, course(), terms)),
        liar.address: listen(answer_as(liar, course(), terms)),
    }
    verdict = hear_dispute(referee, asks, redo, lambda: 0)
    hearing = PublishedHearing(
        sides=terms.sides,
        roots=(digest_of(Hash(terms.roots[0])), digest_of(Hash(terms.roots[1]))),
        answer_s=ANSWER_S,
        most_values=terms.most_values,
        across=False,
        questions=tuple(asked),
    )
    return rule(hearing, *verdict.wrong, leaf=verdict.leaf, why=verdict.why)


@cache
def build_hearing(kind: str = "call", way: str = "backward") -> PublishedHearing:
    return write_down(lie_about(kind, way))


def faults(hearing: PublishedHearing) -> list[str]:
    found = list(find_transcript_faults(DOMAIN, address_of(REFEREE), OFFER, hearing))
    return found or [find_ruling_fault(terms_of(DOMAIN, OFFER, hearing), course(), hearing, redo)[0]]


@pytest.mark.parametrize(("kind", "way"), [("call", "forward"), ("call", "backward"), ("move", ""), ("shard", "")])
def test_an_honest_hearing_follows_from_what_both_sides_signed(kind: str, way: str) -> None:
    hearing = build_hearing(kind, way)
    assert hearing.ruling is not None
    assert hearing.ruling.wrong == (BEN,)
    assert faults(hearing) == [""]
    assert find_ruling_fault(terms_of(DOMAIN, OFFER, hearing), course(), hearing, redo)[1]


def test_a_side_that_was_silent_has_lost() -> None:
    hearing = write_down(lie_about("call", "backward"), silent_at=3)
    assert len(hearing.questions) == 4
    assert faults(hearing) == [""]
    assert "did not answer, and" in faults(rule(hearing, ANN))[0]


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_a_referee_that_cannot_go_on_convicts_nobody_and_is_not_convicted(kept: int) -> None:
    """Its child was too small, or its clock was set back: the auditor's machine need not fail in the same way."""
    begun = build_hearing().model_copy(update={"questions": build_hearing().questions[:kept]})
    if begun.questions:
        last = begun.questions[-1].model_copy(update={"answers": begun.questions[-1].answers[:1]})
        begun = begun.model_copy(update={"questions": (*begun.questions[:-1], last)})
    ruled = rule(begun, why="the referee cannot go on")
    assert list(find_transcript_faults(DOMAIN, address_of(REFEREE), OFFER, ruled)) == []
    assert find_ruling_fault(terms_of(DOMAIN, OFFER, ruled), course(), ruled, redo) == ("", False)
    assert "did not answer, and" in faults(rule(begun, ANN))[0]


def change_answer(hearing: PublishedHearing, number: int, place: int, **fields: Any) -> PublishedHearing:
    asked = list(hearing.questions)
    answers = list(asked[number].answers)
    answers[place] = answers[place].model_copy(update=fields)
    asked[number] = asked[number].model_copy(update={"answers": tuple(answers)})
    return hearing.model_copy(update={"questions": tuple(asked)})


def question_until(hearing: PublishedHearing, number: int, until: int) -> PublishedHearing:
    """Signed by the referee."""
    asked = list(hearing.questions)
    one, dispute = asked[number], terms_of(DOMAIN, OFFER, hearing).dispute
    digest = Question(one.asked, one.level, one.place).digest(dispute, number)
    signature = sign_digest(REFEREE, digest_struct(DOMAIN, DisputeQuestion(dispute, number, digest, until)))
    asked[number] = one.model_copy(update={"until": until, "signature": signature})
    return hearing.model_copy(update={"questions": tuple(asked)})


def test_a_question_that_was_put_late_is_no_fault() -> None:
    late = question_until(build_hearing(), 1, 10 * ANSWER_S)
    assert faults(change_answer(change_answer(late, 1, 0, at=9 * ANSWER_S), 1, 1, at=0)) != [""]
    assert faults(late) == [""]


def answer_nonsense(hearing: PublishedHearing) -> PublishedHearing:
    """The liar's first answer, signed by it, does not hold: the hearing ends there."""
    one, dispute, body = hearing.questions[0], terms_of(DOMAIN, OFFER, hearing).dispute, b"nonsense"
    question = Question(one.asked, one.level, one.place).digest(dispute, 0)
    struct = DisputeAnswer(dispute, BEN, 0, question, digest_reply(body))
    signature = sign_digest(LIAR, digest_struct(DOMAIN, struct))
    said = {"said": digest_reply(body), "signature": signature, "size": len(body), "body": "0x" + body.hex()}
    (place,) = (number for number, each in enumerate(one.answers) if each.side == BEN)
    changed = change_answer(hearing, 0, place, **said)
    return changed.model_copy(update={"questions": changed.questions[:1]})


def test_a_hearing_on_whose_verdict_nobody_waited_any_more_convicts_nobody() -> None:
    """Its task had ended otherwise. No other reason leaves out the verdict on both sides' answers."""
    ended = answer_nonsense(build_hearing())
    over = rule(ended, why=OVER)
    assert list(find_transcript_faults(DOMAIN, address_of(REFEREE), OFFER, over)) == []
    assert find_ruling_fault(terms_of(DOMAIN, OFFER, over), course(), over, redo) == ("", False)
    assert faults(rule(ended, BEN)) == [""]
    assert "nobody lost" in faults(rule(ended, why="the referee cannot go on"))[0]
    assert "wrong (" in faults(rule(ended, ANN, why=OVER))[0]


def drop_answer(hearing: PublishedHearing) -> PublishedHearing:
    """One side's answer to the second question, which the referee went on from."""
    asked = list(hearing.questions)
    asked[1] = asked[1].model_copy(update={"answers": asked[1].answers[:1]})
    return hearing.model_copy(update={"questions": tuple(asked)})


def other_question(hearing: PublishedHearing) -> PublishedHearing:
    """Signed by the referee all the same: it leads away from where they part."""
    asked = list(hearing.questions)
    one = asked[-1]
    place = one.place + 1
    digest = Question(one.asked, one.level, place).digest(terms_of(DOMAIN, OFFER, hearing).dispute, len(asked) - 1)
    struct = DisputeQuestion(terms_of(DOMAIN, OFFER, hearing).dispute, len(asked) - 1, digest, one.until)
    signature = sign_digest(REFEREE, digest_struct(DOMAIN, struct))
    asked[-1] = one.model_copy(update={"place": place, "signature": signature, "answers": ()})
    return hearing.model_copy(update={"questions": tuple(asked)})


LIES: dict[str, tuple[Change, str]] = {
    "the honest side loses": (lambda it: rule(it, ANN, leaf=it.ruling and it.ruling.leaf), "wrong ("),
    "both lose": (lambda it: rule(it, ANN, BEN, leaf=it.ruling and it.ruling.leaf), "wrong ("),
    "another operation": (lambda it: rule(it, BEN, leaf=0), "part at"),
    "no ruling": (lambda it: it.model_copy(update={"ruling": None}), "no ruling"),
    "an unsigned ruling": (
        lambda it: it.model_copy(update={"ruling": it.ruling and it.ruling.model_copy(update={"why": "otherwise"})}),
        "ruling is not signed",
    ),
    "another answer": (lambda it: change_answer(it, 1, 0, body="0x00"), "another than it signed"),
    "an unsigned answer": (lambda it: change_answer(it, 0, 1, signature=bytes(65)), "not signed by it"),
    "a late answer": (lambda it: change_answer(it, 0, 1, at=ANSWER_S + 1), "late"),
    "an end too early": (lambda it: question_until(it, 1, ANSWER_S - 1), "ends before"),
    "an answer left out": (drop_answer, "asked on"),
    "another question": (other_question, "not the one that its rules ask"),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_of_the_referee_is_found(lie: str) -> None:
    change, said = LIES[lie]
    assert any(said in fault for fault in faults(change(build_hearing()))), faults(change(build_hearing()))


def test_values_that_are_not_published_leave_the_operation_unseen() -> None:
    hearing = build_hearing()
    last = len(hearing.questions) - 1
    assert hearing.questions[last].asked == "values"
    hidden = change_answer(change_answer(hearing, last, 0, body=None), last, 1, body=None)
    assert list(find_transcript_faults(DOMAIN, address_of(REFEREE), OFFER, hidden)) == []
    assert find_ruling_fault(terms_of(DOMAIN, OFFER, hidden), course(), hidden, redo) == ("", False)


def test_an_operation_that_cannot_be_computed_again_is_no_fault() -> None:
    def refuse(_leaf: int, _inputs: Sequence[bytes]) -> bytes:
        raise Refused("too large here")

    hearing = build_hearing()
    assert find_ruling_fault(terms_of(DOMAIN, OFFER, hearing), course(), hearing, refuse) == ("", False)
