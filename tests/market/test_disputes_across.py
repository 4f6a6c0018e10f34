"""Sides of two classes: honest ones part by rounding, which convicts nobody; more than rounding is found."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pytest
import torch
from eth_keys.datatypes import PrivateKey
from torch import nn

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.hearing import judge_operation
from gradmarket.market.features.disputes.questions import DisputeQuestion, Question, Reply, digest_reply
from gradmarket.market.features.disputes.referee import DisputeVerdict, Referee, Terms
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.features.disputes.transcript import play_hearing
from gradmarket.market.signing import address_of, digest_struct, signer_of
from gradmarket.market.terms import Hash
from gradmarket.market.wire.hearing_messages import AskedInHearing, SaidInHearing
from gradmarket.runner.features.disputes.traced.course import PlanCourse, judge_results, redo_operation
from gradmarket.runner.features.disputes.traced.run import TaskTrace, trace_task
from graphdoc.tracing.values import Traced, Value
from tests.kit.disputes import ANSWER_S, DOMAIN, HONEST, LIAR, OFFER, Ask, answer_as, hear_dispute, side_of
from tests.kit.torch_tests import TRACING
from tests.kit.traced import Arrays, SmallTask, parse_step, publish, read_value

pytestmark = TRACING
REFEREE: Final = HONEST
Change = Callable[[torch.Tensor], torch.Tensor]


@cache
def task() -> SmallTask:
    torch.manual_seed(5)
    model = publish(nn.Sequential(nn.Linear(300, 8), nn.Tanh(), nn.Linear(8, 3)), (300,))
    draw = np.random.default_rng(7)
    rows: Arrays = {"x": draw.standard_normal((24, 300)).astype(np.float32), "y": draw.integers(0, 3, 24)}
    return SmallTask(model, rows, parse_step(rows=12))


def find_leaf(name: str) -> int:
    plan = task().operations.plan
    return next(leaf for leaf in range(len(plan)) if name in plan[leaf].name)


def trace_changed(leaf: int, change: Change) -> TaskTrace:
    """Returns the trace of a machine on which one operation gives something else, and all later ones follow it."""

    def spoil(number: int, results: list[Value]) -> list[Value]:
        value = results[0]
        if number != leaf or value is None:
            return results
        return [Traced(change(value.data), value.grad), *results[1:]]

    return trace_task(task().operations, task().slots, spoil)


def hear_across(other: TaskTrace) -> DisputeVerdict:
    here, course = task(), PlanCourse(task().operations.plan)
    roots = Hash(here.trace.root), Hash(other.root)
    terms = Terms(DOMAIN, OFFER, (address_of(HONEST), address_of(LIAR)), roots, ANSWER_S, 2**24, across=True)
    sides = [side_of(HONEST, here, here.trace), side_of(LIAR, here, other)]
    asks = {side.address: answer_as(side, course, terms) for side in sides}
    redo, judge = partial(redo_operation, here.operations), partial(judge_results, here.operations)
    return hear_dispute(Referee(terms, course, 0), asks, redo, lambda: 0, judge)


def sum_backwards(_product: torch.Tensor) -> torch.Tensor:
    """The first product in float32, whose terms are added one after another from the last on."""
    values = [read_value(read, task().trace) for read in task().operations.plan[find_leaf("linear")].reads]
    data, weight, bias = (value.tensor("cpu") for value in values if value is not None)
    total = torch.zeros(data.shape[0], weight.shape[0])
    for place in reversed(range(data.shape[1])):
        total = total + data[:, place : place + 1] * weight.t()[place : place + 1]
    return total + bias


def test_honest_sides_of_two_classes_part_by_rounding_and_nobody_is_at_fault() -> None:
    leaf = find_leaf("linear")
    verdict = hear_across(trace_changed(leaf, sum_backwards))
    assert (verdict.wrong, verdict.leaf) == (frozenset(), leaf)
    assert verdict.why.startswith("no fault at")
    assert "at 8 operations after it" in verdict.why


def spoil_both(later: int, change: Change) -> TaskTrace:
    """Returns the trace of a machine that adds from the last term on, and of which one later operation lies."""
    first, backwards = find_leaf("linear"), sum_backwards(torch.empty(0))

    def spoil(number: int, results: list[Value]) -> list[Value]:
        value = results[0]
        if number not in (first, later) or value is None:
            return results
        return [Traced(backwards if number == first else change(value.data), value.grad), *results[1:]]

    return trace_task(task().operations, task().slots, spoil)


def find_later(name: str) -> int:
    """Returns the second operation of this name."""
    first, plan = find_leaf(name), task().operations.plan
    return next(leaf for leaf in range(first + 1, len(plan)) if name in plan[leaf].name)


@pytest.mark.parametrize("name", ["forward of node 2 (linear", "backward of node 2 (linear"])
def test_a_lie_after_honest_rounding_is_found_at_its_own_node(name: str) -> None:
    later = find_leaf(name)
    verdict = hear_across(spoil_both(later, lambda product: product + 1e-3))
    assert (verdict.wrong, verdict.leaf) == (frozenset({address_of(LIAR)}), later)
    assert "more than any order of its sums explains" in verdict.why


def test_a_continued_hearing_is_replayed_from_its_transcript() -> None:
    later, here, asked_ = find_later("linear"), task(), list[AskedInHearing]()
    other, course = spoil_both(later, lambda product: product + 1e-3), PlanCourse(here.operations.plan)
    roots = Hash(here.trace.root), Hash(other.root)
    terms = Terms(DOMAIN, OFFER, (address_of(HONEST), address_of(LIAR)), roots, ANSWER_S, 2**24, across=True)
    sides = [side_of(HONEST, here, here.trace), side_of(LIAR, here, other)]
    bodies = dict[tuple[int, str], bytes]()

    def write_down(side: Side) -> Ask:
        def ask(put: DisputeQuestion, what: Question) -> Iterator[Reply]:
            if len(asked_) == put.number:
                fields: dict[str, Any] = {"asked": what.asked, "level": what.level, "place": what.place}
                asked_.append(AskedInHearing(**fields, until=put.until, signature=bytes(65)))
            for reply in answer_as(side, course, terms)(put, what):
                said: dict[str, Any] = {"side": reply.side, "said": digest_reply(reply.said), "size": len(reply.said)}
                shown = SaidInHearing(**said, signature=reply.signature, at=put.number)
                bodies[put.number, reply.side] = reply.said
                asked_[-1] = asked_[-1].model_copy(update={"answers": (*asked_[-1].answers, shown)})
                yield reply

        return ask

    referee = Referee(terms, course, 0)
    redo, judge = partial(redo_operation, here.operations), partial(judge_results, here.operations)
    asks = {side.address: write_down(side) for side in sides}
    verdict = hear_dispute(referee, asks, redo, lambda: referee.open_question.number, judge)
    played = play_hearing(terms, course, asked_, lambda number, said: bodies[number, said.side])
    assert [each.asked for each in asked_].count("results") > 1
    assert (verdict.wrong, verdict.leaf) == (frozenset({address_of(LIAR)}), later)
    assert (played.whole, played.referee.operation) == (True, later)
    asked_.append(asked_[-1])
    with pytest.raises(Refused, match="not the one that its rules ask next"):
        play_hearing(terms, course, asked_, lambda number, said: bodies[number, said.side])


def test_a_lie_in_a_later_part_is_left_to_votes() -> None:
    here, payload = task(), len(task().operations.plan) - 1
    first, backwards = find_leaf("linear"), sum_backwards(torch.empty(0))
    told = {first: Traced(backwards), payload: Traced(bytes(32))}

    def spoil(number: int, results: list[Value]) -> list[Value]:
        return [told[number], *results[1:]] if number in told else results

    verdict = hear_across(trace_task(here.operations, here.slots, spoil))
    assert (verdict.wrong, verdict.leaf) == (frozenset(), first)
    assert "of any other" in verdict.why


def test_the_honest_rounding_of_later_operations_convicts_nobody() -> None:
    verdict = hear_across(spoil_both(find_later("linear"), lambda product: product * (1 + 2.0**-23)))
    assert not verdict.wrong


def test_a_later_lie_that_claims_to_be_too_long_to_show_hangs_nothing() -> None:
    here, other = task(), spoil_both(find_later("linear"), lambda product: product + 1e-3)
    course, roots = PlanCourse(here.operations.plan), (Hash(here.trace.root), Hash(other.root))
    terms = Terms(DOMAIN, OFFER, (address_of(HONEST), address_of(LIAR)), roots, ANSWER_S, 2**24, across=True)
    honest, liar = side_of(HONEST, here, here.trace), side_of(LIAR, here, other)
    shown, liar.show = liar.show, lambda part, leaf: [bytes(2**24 + 1)] if leaf >= 0 else shown(part, leaf)
    asks = {side.address: answer_as(side, course, terms) for side in (honest, liar)}
    redo, judge = partial(redo_operation, here.operations), partial(judge_results, here.operations)
    verdict = hear_dispute(Referee(terms, course, 0), asks, redo, lambda: 0, judge)
    assert not verdict.wrong


@pytest.mark.parametrize("by", [1e-2, float("nan")])
def test_a_lie_beyond_the_bound_is_found(by: float) -> None:
    leaf = find_leaf("linear")

    def move(product: torch.Tensor) -> torch.Tensor:
        moved = product.clone()
        moved[-1, -1] += by
        return moved

    verdict = hear_across(trace_changed(leaf, move))
    assert (verdict.wrong, verdict.leaf) == (frozenset({address_of(LIAR)}), leaf)
    assert "more than any order of its sums explains" in verdict.why


def test_other_rows_than_the_tasks_are_found_between_classes_too() -> None:
    leaf = find_leaf("draw of the task's rows")
    here = task()

    def spoil(number: int, results: list[Value]) -> list[Value]:
        rows = results[0]
        return [Traced(rows.array()[::-1].copy())] if number == leaf and rows is not None else results

    verdict = hear_across(trace_task(here.operations, here.slots, spoil))
    assert (verdict.wrong, verdict.leaf) == (frozenset({address_of(LIAR)}), leaf)


def test_the_referee_leaves_an_unbounded_operation_undecided() -> None:
    leaf = find_leaf("tanh")
    verdict = hear_across(trace_changed(leaf, lambda tensor: tensor + 0.25))
    assert (verdict.wrong, verdict.leaf) == (frozenset(), leaf)
    assert "between classes nobody can tell" in verdict.why


def test_results_that_are_not_a_side_s_own_lose() -> None:
    here, other = task(), trace_changed(find_leaf("linear"), sum_backwards)
    course, roots = PlanCourse(here.operations.plan), (Hash(here.trace.root), Hash(other.root))
    terms = Terms(DOMAIN, OFFER, (address_of(HONEST), address_of(LIAR)), roots, ANSWER_S, 2**24, across=True)
    honest, liar = side_of(HONEST, here, here.trace), side_of(LIAR, here, other)
    liar.results = honest.results
    asks = {side.address: answer_as(side, course, terms) for side in (honest, liar)}
    verdict = hear_dispute(Referee(terms, course, 0), asks, partial(redo_operation, here.operations), lambda: 0)
    assert verdict.wrong == {address_of(LIAR)}
    assert "does not match its digest" in verdict.why


@pytest.mark.parametrize("first", [HONEST, LIAR], ids=["the honest one", "the liar"])
def test_an_oversized_answer_does_not_stop_the_hearing_in_either_order(first: PrivateKey) -> None:
    here, other = task(), trace_changed(find_leaf("linear"), lambda product: product + 1e-2)
    course, roots = PlanCourse(here.operations.plan), (Hash(here.trace.root), Hash(other.root))
    terms = Terms(DOMAIN, OFFER, (address_of(HONEST), address_of(LIAR)), roots, ANSWER_S, 2**24, across=True)
    sides = {HONEST: side_of(HONEST, here, here.trace), LIAR: side_of(LIAR, here, other)}
    referee = Referee(terms, course, 0)
    while referee.verdict is None and referee.operation is None:
        asked, number = referee.question, referee.open_question.number
        for key in sorted(sides, key=lambda key: key != first):
            if asked.asked == "values" and key is LIAR:
                referee.record_oversized(address_of(key), 0)
            else:
                referee.receive(sides[key].answer(terms.domain, course, terms.dispute, number, asked), 0)
        assert referee.open_question.number > number or referee.operation is not None
    redo, judge = partial(redo_operation, here.operations), partial(judge_results, here.operations)
    judge_operation(referee, find_leaf("linear"), redo, judge)
    assert referee.verdict is not None
    assert referee.verdict.wrong == {address_of(LIAR)}


def test_a_careful_side_shows_results_of_the_operation_whose_values_it_showed_and_of_no_other() -> None:
    here, course = task(), PlanCourse(task().operations.plan)
    own = side_of(HONEST, here, here.trace)
    careful = CarefulSide(DOMAIN, OFFER, Hash(here.trace.root), own, course, address_of(REFEREE))
    sides, roots = (own.address, address_of(LIAR)), (Hash(here.trace.root), Hash(bytes(32)))
    dispute = careful.name_dispute(sides, roots)

    def put(number: int, asked: Question) -> None:
        until = 10
        struct = DisputeQuestion(dispute, number, asked.digest(dispute, number), until)
        signature = signer_of(REFEREE)(digest_struct(DOMAIN, struct))
        careful.answer(PutQuestion(sides, roots, number, asked, until, signature))

    put(0, Question("root"))
    put(1, Question("part", 0, 1))
    with pytest.raises(Refused, match="values it did not ask for"):
        put(2, Question("results", 0, 0))
    put(3, Question("values", 0, 0))
    with pytest.raises(Refused, match="values it did not ask for"):
        put(4, Question("results", 0, 1))
    put(5, Question("results", 0, 0))
    with pytest.raises(Refused, match="values it did not ask for"):
        put(6, Question("results", 0, 0))
