"""A dispute ends at the operation where both sides part, and whoever lies, is silent, or contradicts itself loses."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from random import Random

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.hearing import judge_operation
from gradmarket.market.features.disputes.questions import (
    DisputeQuestion,
    Question,
    Reply,
    count_questions,
    count_total,
    split_parts,
)
from gradmarket.market.features.disputes.referee import BEFORE, Referee, Terms
from gradmarket.market.features.log.merkle import MerkleTree
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Hash
from gradmarket.runner.features.disputes.traced.course import PlanCourse, redo_operation
from gradmarket.runner.features.disputes.traced.run import TaskTrace
from graphdoc.tracing.values import Traced, compute_digest
from tests.kit.disputes import (
    ANSWER_S,
    DOMAIN,
    HONEST,
    LIAR,
    OFFER,
    Lie,
    answer_as,
    build_lie,
    hear_dispute,
    play_dispute,
    side_of,
    terms_of,
)
from tests.kit.traced import SmallTask, parse_step, small_cnn
from tests.market.test_traced import STEPS


@cache
def task(kind: str = "local") -> SmallTask:
    return small_cnn(parse_step(**STEPS[kind]))


def lie_about(kind: str, way: str = "") -> Lie:
    """Returns a lie about the first operation of a kind that has something to lie about."""
    here, plan = task(), task().operations.plan
    leaves = [leaf for leaf in range(len(plan)) if plan[leaf].kind == kind and way in plan[leaf].name]
    lies = (build_lie(here, leaf, 0, Random(1)) for leaf in leaves)
    return next(lie for lie in lies if lie is not None)


KINDS = ("rows", "state", "data", "sum", "clip", "move", "tally", "change", "loss", "shard", "payload")


@pytest.mark.parametrize(("kind", "way"), [*((kind, "") for kind in KINDS), ("call", "forward"), ("call", "backward")])
def test_a_lie_is_found_at_its_operation(kind: str, way: str) -> None:
    lie = lie_about(kind, way)
    verdict, referee = play_dispute(task(), lie)
    assert verdict.leaf == lie.leaf
    assert verdict.wrong == {address_of(LIAR)}
    assert task().operations.plan[lie.leaf].name in verdict.why
    assert referee.open_question.number < count_questions(len(task().operations.plan), len(task().operations.plan))


def test_the_honest_side_wins_in_either_place_and_the_messages_are_small() -> None:
    lie = lie_about("move")
    verdict, referee = play_dispute(task(), lie)
    assert referee.messages <= 64 * 1024
    assert verdict.wrong == {address_of(LIAR)}


def silent(_asked: DisputeQuestion, _question: Question) -> Iterator[Reply]:
    yield from ()


def test_a_silent_side_loses_and_two_silent_ones_both() -> None:
    lie = lie_about("call")
    verdict, _ = play_dispute(task(), lie, liar=silent)
    assert verdict.wrong == {address_of(LIAR)}
    assert "in time" in verdict.why
    referee = Referee(terms_of(task(), lie), PlanCourse(task().operations.plan), 0)
    for now in (ANSWER_S, ANSWER_S + 1):
        assert wrong_in(referee) == frozenset()
        referee.expire(now)
    assert wrong_in(referee) == {address_of(LIAR), address_of(HONEST)}


def wrong_in(referee: Referee) -> frozenset[str]:
    return frozenset() if referee.verdict is None else referee.verdict.wrong


def hear_by_clock(lie: Lie, too_late: bool) -> tuple[Referee, int]:
    """Returns the referee and the time of its verdict. The honest side takes all its time for each run of the task, the
    liar everywhere the rest of its clock; or a second more, once the rest is less than a question's time."""
    course, terms, now = PlanCourse(task().operations.plan), terms_of(task(), lie), 0
    honest, liar = side_of(HONEST, task(), task().trace), side_of(LIAR, task(), lie.trace)
    referee = Referee(terms, course, now)
    while not referee.is_decided():
        asked, question, end = referee.open_question, referee.question, referee.find_ends()[liar.address]
        if too_late and end < asked.until:
            end += 1
        runs = question.asked in ("root", "part", "values")
        for at, side in sorted([(now + ANSWER_S * runs, honest), (end, liar)], key=lambda each: each[0]):
            now = at
            referee.expire(now)
            for reply in () if referee.is_decided() else answer_as(side, course, terms)(asked, question):
                referee.receive(reply, now)
        if (leaf := referee.operation) is not None:
            judge_operation(referee, leaf, partial(redo_operation, task().operations))
    return referee, now


def test_a_side_s_answers_share_a_total_time_that_a_patient_side_keeps() -> None:
    lie, total = lie_about("call"), count_total(ANSWER_S, across=False)
    patient, ended = hear_by_clock(lie, too_late=False)
    assert patient.verdict is not None
    assert (patient.verdict.wrong, patient.verdict.leaf) == ({address_of(LIAR)}, lie.leaf)
    assert total <= ended <= 2 * total
    slow, ended = hear_by_clock(lie, too_late=True)
    assert slow.verdict is not None
    assert (slow.verdict.wrong, slow.verdict.why) == ({address_of(LIAR)}, "it did not answer in time")
    assert ended < slow.open_question.until, "the question itself lasts on"


@pytest.mark.parametrize("turn", ["root", "part", "children", "leaf", "values"])
def test_a_side_whose_answer_does_not_hold_loses_wherever_it_is(turn: str) -> None:
    """The liar answers a question with another's answer, cut short, made longer, or of other bytes."""
    lie = lie_about("call", "backward")
    course, terms = PlanCourse(task().operations.plan), terms_of(task(), lie)
    liar = side_of(LIAR, task(), lie.trace)

    def spoiled(said: bytes, how: int) -> bytes:
        return (said[:-1], said + bytes(32), bytes([said[-1] ^ 1]).join((said[:-1], b"")), b"")[how]

    for how in range(4):

        def ask(asked: DisputeQuestion, question: Question, how: int = how) -> Iterator[Reply]:
            if question.asked != turn:
                yield from answer_as(liar, course, terms)(asked, question)
                return
            side = replace(liar)
            said = spoiled(liar.encode_reply(course, question), how)
            object.__setattr__(side, "encode_reply", lambda *_: said)
            yield side.answer(terms.domain, course, terms.dispute, asked.number, question)

        verdict, _ = play_dispute(task(), lie, liar=ask)
        assert verdict.wrong == {address_of(LIAR)}
        assert "does not hold" in verdict.why


def test_late_unsigned_or_strange_answers_are_refused() -> None:
    lie = lie_about("call")
    course, terms = PlanCourse(task().operations.plan), terms_of(task(), lie)
    referee = Referee(terms, course, 0)
    liar, honest = side_of(LIAR, task(), lie.trace), side_of(HONEST, task(), task().trace)
    good = liar.answer(terms.domain, course, terms.dispute, 0, referee.question)
    refused = [
        (replace(good, side=honest.address), 0),
        (replace(good, side=address_of(HONEST.__class__(b"\3" * 32))), 0),
        (replace(good, number=1), 0),
        (replace(good, signature=bytes(65)), 0),
        (replace(good, said=good.said + b"x"), 0),
        (good, ANSWER_S + 1),
    ]
    for answer, now in refused:
        with pytest.raises(Refused):
            referee.receive(answer, now)
    referee.receive(good, ANSWER_S)
    with pytest.raises(Refused, match="already"):
        referee.receive(good, ANSWER_S)
    assert referee.verdict is None


def test_a_side_that_commits_to_another_answer_than_it_gave_loses() -> None:
    lie = lie_about("call")
    other = Lie(lie.leaf, lie.place, replace(lie.trace, root=bytes(32)))
    verdict, _ = play_dispute(task(), other)
    assert verdict.wrong == {address_of(LIAR)}
    assert "another answer" in verdict.why


def test_a_checkpoint_that_its_own_operations_do_not_give_is_found_from_digests_alone() -> None:
    plan = task().operations.plan
    for part in range(plan.count_parts - 1):
        changed, byte = list(task().trace.checkpoints), -1 if part % 2 else 0
        spoiled = bytearray(changed[part])
        spoiled[byte] ^= 1
        changed[part] = bytes(spoiled)
        lie = lie_about("payload")
        trace = replace(task().trace, checkpoints=[*changed[:-1], lie.trace.checkpoints[-1]], root=lie.trace.root)
        verdict, referee = play_dispute(task(), Lie(lie.leaf, 0, trace))
        assert verdict.wrong == {address_of(LIAR)}
        assert (f"checkpoint {part}" in verdict.why, referee.question.asked) == (True, "entry")
        assert referee.messages <= 64 * 1024


def test_two_liars_both_lose_and_sides_that_agree_have_no_dispute() -> None:
    one, other = lie_about("call", "backward"), lie_about("call", "forward")
    course, terms = PlanCourse(task().operations.plan), terms_of(task(), one)
    with pytest.raises(Refused, match="different answers"):
        Referee(replace(terms, roots=(terms.roots[0], terms.roots[0])), course, 0)
    lies = (build_lie(task(), other.leaf, 0, Random(seed)) for seed in range(2, 9))
    spoiled = next(lie for lie in lies if lie is not None and lie.trace.root != other.trace.root)
    liars = side_of(HONEST, task(), spoiled.trace), side_of(LIAR, task(), other.trace)
    referee = Referee(replace(terms, roots=(Hash(spoiled.trace.root), Hash(other.trace.root))), course, 0)
    while referee.operation is None:
        question, number = referee.question, referee.open_question.number
        for liar in liars:
            referee.receive(liar.answer(terms.domain, course, referee.terms.dispute, number, question), 0)
    verdict = referee.decide(redo_operation(task().operations, referee.operation, referee.inputs))
    assert verdict.wrong == {address_of(HONEST), address_of(LIAR)}


def test_a_referee_that_cannot_compute_the_operation_rules_nothing() -> None:
    lie = lie_about("call", "forward")
    course, terms = PlanCourse(task().operations.plan), terms_of(task(), lie)
    referee = Referee(terms, course, 0)
    with pytest.raises(Refused, match="nothing to decide"):
        referee.decide(b"")
    sides = side_of(LIAR, task(), lie.trace), side_of(HONEST, task(), task().trace)
    while referee.operation is None:
        question, number = referee.question, referee.open_question.number
        for side in sides:
            referee.receive(side.answer(terms.domain, course, terms.dispute, number, question), 0)
    verdict = referee.decide(None, "another class")
    assert verdict.wrong == frozenset()
    assert verdict.leaf == lie.leaf


@pytest.mark.parametrize("shown", [(), (LIAR,), (HONEST,)], ids=["nobody", "the liar", "the honest one"])
def test_values_that_a_referee_does_not_hold_cost_nobody_the_dispute(shown: tuple[PrivateKey, ...]) -> None:
    """Their digests are agreed on, so one side's decide; where both have too much of them, nobody is wrong."""
    lie = lie_about("call", "forward")
    course, terms = PlanCourse(task().operations.plan), terms_of(task(), lie)
    referee = Referee(terms, course, 0)
    sides = {LIAR: side_of(LIAR, task(), lie.trace), HONEST: side_of(HONEST, task(), task().trace)}
    while referee.question.asked != "values":
        question, number = referee.question, referee.open_question.number
        for side in sides.values():
            referee.record_oversized(side.address, 0)  # of anything but values the length is known
            referee.receive(side.answer(terms.domain, course, terms.dispute, number, question), 0)
    for key, side in sides.items():
        if key in shown:
            reply = side.answer(terms.domain, course, terms.dispute, referee.open_question.number, referee.question)
            referee.receive(reply, 0)
        else:
            referee.record_oversized(address_of(key), 0)
    referee.expire(ANSWER_S + 1)
    if shown:
        leaf = referee.operation
        assert leaf is not None
        judge_operation(referee, leaf, partial(redo_operation, task().operations))
        assert wrong_in(referee) == {address_of(LIAR)}
    else:
        assert referee.verdict is not None
        assert "does not hold" in referee.verdict.why
        assert wrong_in(referee) == frozenset()


def test_a_side_without_values_is_refused_once_the_operation_is_computed() -> None:
    """A spoilt answer meanwhile would end the dispute below the referee that decides it."""
    lie = lie_about("call", "forward")
    course, terms = PlanCourse(task().operations.plan), terms_of(task(), lie)
    referee = Referee(terms, course, 0)
    liar, honest = side_of(LIAR, task(), lie.trace), side_of(HONEST, task(), task().trace)
    while referee.question.asked != "values":
        question, number = referee.question, referee.open_question.number
        for side in (liar, honest):
            referee.receive(side.answer(terms.domain, course, terms.dispute, number, question), 0)
    referee.record_oversized(liar.address, 0)
    question, number = referee.question, referee.open_question.number
    referee.receive(honest.answer(terms.domain, course, terms.dispute, number, question), 0)
    leaf = referee.operation
    assert leaf is not None
    with pytest.raises(Refused, match="already"):
        referee.receive(liar.answer(terms.domain, course, terms.dispute, number, question), 0)
    judge_operation(referee, leaf, partial(redo_operation, task().operations))
    assert wrong_in(referee) == {address_of(LIAR)}


def test_a_side_that_is_silent_beside_values_too_long_loses() -> None:
    lie = lie_about("call", "forward")
    course, terms = PlanCourse(task().operations.plan), terms_of(task(), lie)
    referee = Referee(terms, course, 0)
    sides = side_of(LIAR, task(), lie.trace), side_of(HONEST, task(), task().trace)
    while referee.question.asked != "values":
        question, number = referee.question, referee.open_question.number
        for side in sides:
            referee.receive(side.answer(terms.domain, course, terms.dispute, number, question), 0)
    referee.record_oversized(address_of(HONEST), 0)
    referee.expire(ANSWER_S + 1)
    assert wrong_in(referee) == {address_of(LIAR)}


def test_the_first_answer_shows_the_root_and_the_last_leaf() -> None:
    here = task()
    side = side_of(HONEST, here, here.trace)
    root, leaf, _path = split_parts(side.encode_reply(PlanCourse(here.operations.plan), Question("root")), 3)
    assert root == MerkleTree(here.trace.checkpoints).root
    assert leaf == here.trace.checkpoints[-1] == here.trace.leaves[-1]


def test_two_liars_that_agree_on_a_checkpoint_without_digests_lose_and_stop_nothing() -> None:
    """They differ in an entry that the part only hands on: it is looked up in the checkpoint before."""
    plan, honest = task().operations.plan, task().trace
    course = PlanCourse(plan)
    part, entry = next(
        (part, entry)
        for part in range(1, course.parts - 1)
        for entry, (place, _) in enumerate(course.describe(part, course.count(part) - 1).values)
        if place == BEFORE
    )
    digests = bytearray(honest.checkpoints[part])
    digests[32 * entry] ^= 1
    kept = [*honest.checkpoints[: part - 1], b""]
    other = bytes([honest.root[0] ^ 1]) + honest.root[1:]
    first = TaskTrace([*kept, *honest.checkpoints[part:]], honest.leaves, {}, honest.root)
    ends = [*honest.checkpoints[part + 1 : -1], compute_digest(Traced(other))]
    second = TaskTrace([*kept, bytes(digests), *ends], honest.leaves, {}, other)
    terms = Terms(
        DOMAIN, OFFER, (address_of(HONEST), address_of(LIAR)), (Hash(first.root), Hash(second.root)), ANSWER_S, 2**24
    )
    referee = Referee(terms, course, 0)
    sides = side_of(HONEST, task(), first), side_of(LIAR, task(), second)
    asks = {side.address: answer_as(side, course, terms) for side in sides}
    verdict = hear_dispute(referee, asks, partial(redo_operation, task().operations), lambda: 0)
    assert verdict.wrong
    assert "digests" in verdict.why
