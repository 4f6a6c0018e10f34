"""A recorded hearing: played again from its questions and answers, and checked by a reader that trusts neither side."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.features.disputes.questions import (
    OVER,
    DisputeAnswer,
    DisputeQuestion,
    Question,
    Reply,
    SideClocks,
    digest_reply,
)
from gradmarket.market.features.disputes.referee import Course, Referee, Terms
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.hearing_messages import (
    AskedInHearing,
    PublishedHearing,
    SaidInHearing,
    name_dispute,
)
from gradmarket.market.wire.poll import hash_of

NO_RULING: Final = "it has no ruling"
Body = Callable[[int, SaidInHearing], bytes | None]
"""Returns the bytes of an answer to question `number`; None where they are missing."""
Redo = Callable[[int, Sequence[bytes]], bytes]


class PlayedHearing(NamedTuple):
    """`whole`: whether each answer's bytes were there; else it ends before the first one that was not."""

    referee: Referee
    whole: bool


def terms_of(domain: Domain, offer: Hash, hearing: PublishedHearing) -> Terms:
    roots = hash_of(hearing.roots[0]), hash_of(hearing.roots[1])
    return Terms(domain, offer, hearing.sides, roots, hearing.answer_s, hearing.most_values, hearing.across)


def read_body(_number: int, reply: SaidInHearing) -> bytes | None:
    """Returns the bytes of an answer that the transcript itself holds."""
    return None if reply.body is None else bytes.fromhex(reply.body[2:])


def play_hearing(terms: Terms, course: Course, asked: Sequence[AskedInHearing], body: Body) -> PlayedHearing:
    """Asks and answers again; an operation between classes after which the referee asked on counts as judged to be no
    fault.

    Raises Refused where a question is not the one that the rules ask next, or one too many.
    """
    referee = Referee(terms, course, asked[0].until - terms.answer_s) if asked else Referee(terms, course, 0)
    for number, each in enumerate(asked):
        if referee.operation is not None and terms.across:  # it asked on: no side was found at fault there
            referee.decide_across({})
        due = referee.question, referee.open_question.number
        if referee.is_decided() or due != (Question(each.asked, each.level, each.place), number):
            raise Refused(f"question {number} is not the one that its rules ask next")
        if each.until < referee.open_question.until:
            raise Refused(f"question {number} ends too early")
        referee.extend(each.until)
        for reply in each.answers:
            if referee.is_decided():  # by the answer before
                break
            held = body(number, reply)
            if held is None and reply.size <= referee.most_bytes:
                return PlayedHearing(referee, False)
            if held is None:
                referee.check_signed(reply.side, number, reply.said, reply.signature)
                referee.record_oversized(reply.side, reply.at)
            else:
                referee.receive(Reply(reply.side, number, held, reply.signature), reply.at)
    return PlayedHearing(referee, True)


def find_transcript_faults(domain: Domain, signer: Address, offer: Hash, hearing: PublishedHearing) -> Iterator[str]:
    """Yields faults that show without a document: missing signatures, late answers, rulings against a false silence."""
    roots = hash_of(hearing.roots[0]), hash_of(hearing.roots[1])
    dispute, ruling = name_dispute(offer, hearing.sides, roots), hearing.ruling
    due: int | None = None
    clocks = SideClocks(hearing.answer_s, hearing.across)
    for number, each in enumerate(hearing.questions):
        question = Question(each.asked, each.level, each.place).digest(dispute, number)
        if not is_signed_by(domain, DisputeQuestion(dispute, number, question, each.until), each.signature, signer):
            yield f"question {number} is not signed by the referee"
        if due is not None and each.until < due:
            yield f"question {number} ends before {hearing.answer_s} s after the answers before it"
        due = max((reply.at for reply in each.answers), default=each.until) + hearing.answer_s
        for reply in each.answers:
            yield from (
                f"question {number}: {why}" for why in _find_answer_faults(domain, dispute, question, number, reply)
            )
            if reply.at > clocks.find_end(reply.side, each.until):
                yield f"question {number}: the answer of {reply.side} was late, and counted"
            clocks.stop(reply.side, each.until, reply.at)
        last = number == len(hearing.questions) - 1
        if not last and {reply.side for reply in each.answers} != set(hearing.sides):
            yield f"question {number} has no answer of one side, and the referee asked on"
    if ruling is None:
        yield NO_RULING
    elif not is_signed_by(domain, ruling.struct(dispute, hearing.sides), ruling.signature, signer):
        yield "its ruling is not signed by the referee"


def _find_answer_faults(
    domain: Domain, dispute: Hash, question: Hash, number: int, reply: SaidInHearing
) -> Iterator[str]:
    struct = DisputeAnswer(dispute, reply.side, number, question, reply.said)
    if not is_signed_by(domain, struct, reply.signature, reply.side):
        yield f"the answer of {reply.side} is not signed by it"
    body = read_body(number, reply)
    if body is not None and (digest_reply(body) != reply.said or len(body) != reply.size):
        yield f"the answer of {reply.side} is another than it signed"


def count_answers(hearing: PublishedHearing) -> tuple[int, int]:
    """Returns how many questions each side has answered."""
    said = Counter(said.side for each in hearing.questions for said in each.answers)
    return said[hearing.sides[0]], said[hearing.sides[1]]


def list_silent(hearing: PublishedHearing) -> set[Address]:
    """Returns the sides that have not answered the last question."""
    last = hearing.questions[-1].answers if hearing.questions else ()
    return set(hearing.sides) - {reply.side for reply in last}


def find_ruling_fault(terms: Terms, course: Course, hearing: PublishedHearing, redo: Redo | None) -> tuple[str, bool]:
    """Returns why its ruling does not follow from the answers of both sides, empty where it does; and whether
    everything was checked. An operation is unchecked where its values are not published, or where only a bound on
    rounding judges it."""
    ruling = hearing.ruling
    if ruling is None:
        return "it has no ruling", True
    try:
        played = play_hearing(terms, course, hearing.questions, read_body)
    except MarketError as error:
        return str(error), True
    referee, wrong = played.referee, set(ruling.wrong)
    if not played.whole:
        return "", False
    if referee.verdict is None and referee.operation is None:
        if not wrong:  # the referee states that it cannot go on, and nobody can check that
            return "", False
        silent = list_silent(hearing)
        return ("" if wrong == silent else f"{_name(silent)} did not answer, and {_name(wrong)} lost"), True
    if (leaf := referee.operation) is not None:
        if redo is None or terms.across or not wrong:
            return "", False
        with suppress(Refused):
            referee.decide(redo(leaf, referee.inputs))
    if referee.verdict is None or (not wrong and ruling.why == OVER):  # over before the verdict that the answers give
        return "", False
    found = referee.verdict
    if found.wrong != wrong:
        return f"it ends with {_name(found.wrong)} wrong ({found.why}), and {_name(wrong)} lost", True
    return ("" if found.leaf == ruling.leaf else f"the sides part at {found.leaf}, and the ruling names another"), True


def _name(sides: set[Address] | frozenset[Address]) -> str:
    return " and ".join(sorted(sides)) or "nobody"
