"""A job whose rounds publish updates in few bytes: its tasks start from the parameters of every follower."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from gradmarket.market.admissible import move_of
from gradmarket.market.errors import JobRefused, PayloadRefused
from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.published_update import HEAD, apply_published_update, update_bytes
from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.gradient.round_update import ModelState, build_model_state
from gradmarket.market.job_parts import Downlink
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Digest, Hash, JobState, RoundState
from gradmarket.market.wire.poll import hash_of
from graphdoc import tensors
from requester.moves import blob_cleanup, replay, snapshots
from requester.moves.admission import admit_job
from requester.store import blob_needs, jobs
from requester.store.blob_needs import _find_changed_parameters
from requester.store.tables import Round
from tests.kit.behaviour import scaled
from tests.kit.whole_merge import apply_merged_answer, merge_answers
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import COUNTER, LAYOUT, MarketFixture, first_parameters
from tests.requester.market_workers import SimWorker, honest_answer

NewMarket = Callable[..., MarketFixture]
ADAMW = {"name": "adamw", "lr": 0.1, "weight_decay": 0.1, "clip": 1.0}
SPEC: dict[str, Any] = {"rounds": 7, "tasks_per_round": 2, "optimizer": ADAMW, "downlink": {"codec": "two_bit"}}
FIRST: dict[str, Any] = {"downlink": {"codec": "two_bit", "first": {"codec": "int4", "rounds": 3}}}
ALONE: dict[str, Any] = SPEC | {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
SELDOM = {"snapshot_rounds": 3, "snapshot_s": 1e9}


def by_the_formula(market: MarketFixture, worker: SimWorker) -> list[ModelState]:
    """Before each round and after the last, computed round by round on one machine."""
    job = market.the_job()
    spec = jobs.load_spec(job)
    states = [build_model_state(LAYOUT, first_parameters(), move_of(spec))]
    for number in range(spec.rounds):
        start = states[max(0, number - spec.overlap)].tensors
        seeds = [secrets.task_seed(spec.seed, number, index) for index in spec.tasks_of(number)]
        answers = [MergedAnswer(worker.encode(honest_answer(start, seed), seed), seed) for seed in seeds]
        merged = merge_answers(replay.build_recipe(spec, job), answers)
        lr = compute_learning_rate("constant", spec.optimizer.lr, number, spec.rounds, spec.optimizer.schedule.warmup)
        before = hash_of(market.context.blobs.put(tensors.pack_tensors(states[-1].tensors)))
        move = move_of(spec, number)
        states.append(apply_merged_answer(LAYOUT, states[-1], merged, move, lr, (COUNTER,), before))
    return states


def staffed(new_market: NewMarket, workers: int = 3, settings: Any = None, **spec: Any) -> MarketFixture:
    market = new_market(settings=settings, **SPEC | spec)
    for _ in range(workers):
        market.worker().capacity = 2
    return market


def check_formula_end(market: MarketFixture) -> None:
    assert market.state() == JobState.FINISHED, market.why_waiting()
    states = by_the_formula(market, market.workers[-1])
    blobs = [tensors.pack_tensors(state.tensors) for state in states]
    assert market.context.blobs.read(Digest(market.final_parameters())) == blobs[-1]
    digests = [market.context.blobs.put(blob) for blob in blobs]
    assert [row.updated for row in market.rounds()] == digests[1:]
    assert [row.published_update for row in market.rounds()] == [
        market.context.blobs.put(state.update) for state in states[1:]
    ]
    check_books(market)


def closed(market: MarketFixture) -> int:
    return sum(row.state == RoundState.CLOSED for row in market.rounds())


def kept_updates(market: MarketFixture) -> list[int]:
    blobs = market.context.blobs
    return [row.number for row in market.rounds() if row.published_update and blobs.has(row.published_update)]


@pytest.mark.parametrize("overlap", leave_to_full([0, 1]))
@pytest.mark.parametrize("replicas", leave_to_full([1, 3]))
def test_a_job_with_updates_ends_with_the_formula_s_bits(new_market: NewMarket, overlap: int, replicas: int) -> None:
    checked = {"name": "fixed", "replicas": replicas, "max_replicas": replicas}
    market = staffed(new_market, replication=checked, overlap=overlap)
    market.play(passes=100)
    check_formula_end(market)


@FULL
@pytest.mark.parametrize("overlap", leave_to_full([0, 1]))
def test_the_first_rounds_have_a_codec_of_their_own(new_market: NewMarket, overlap: int) -> None:
    market = staffed(new_market, overlap=overlap, **FIRST)
    market.play(passes=100)
    check_formula_end(market)
    other = staffed(new_market, overlap=overlap)
    other.play(passes=100)
    assert market.rounds()[0].published_update != other.rounds()[0].published_update
    updates = [after.update for after in by_the_formula(market, market.workers[-1])[1:]]
    early, late = (update_bytes(LAYOUT, load_codec(name)) for name in ("int4", "two_bit"))
    assert early != late
    assert list(map(len, updates)) == [early] * 3 + [late] * 4


@FULL
def test_the_first_rounds_are_replayed_with_their_codec(new_market: NewMarket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SMALL", 0)
    market = new_market(settings=SELDOM, **ALONE | FIRST)
    market.worker()
    for number in (2, 3, 5):
        market.until(lambda number=number: closed(market) >= number)  # type: ignore[misc]
        market.crash()
    market.play(passes=100)
    check_formula_end(market)


def test_a_follower_has_what_every_round_starts_from(new_market: NewMarket) -> None:
    market = staffed(new_market)
    held = {name: array.copy() for name, array in first_parameters().items()}

    def through(number: int) -> Callable[[], bool]:
        return lambda: closed(market) > number

    for number in range(SPEC["rounds"] - 1):
        market.until(through(number))
        row = market.rounds()[number]
        before, update = Digest(row.parameters), market.context.blobs.read(row.published_update)
        assert update[:HEAD] == hash_of(before)
        apply_published_update(LAYOUT, load_codec("two_bit"), held, hash_of(before), update, (COUNTER,))
        assert (
            market.context.blobs.put(tensors.pack_tensors(held))
            == row.updated
            == market.rounds()[number + 1].parameters
        )
    with pytest.raises(PayloadRefused, match="other parameters"):
        apply_published_update(LAYOUT, load_codec("two_bit"), held, Hash(bytes(32)), update, (COUNTER,))


@FULL
def test_without_a_downlink_nothing_is_published_and_it_ends_elsewhere(new_market: NewMarket) -> None:
    market = staffed(new_market, downlink={"codec": "fp32"})
    market.play(passes=100)
    assert {row.published_update for row in market.rounds()} == {None}
    other = staffed(new_market)
    other.play(passes=100)
    assert market.final_parameters() != other.final_parameters()
    near, exact = (
        tensors.unpack_tensors(one.context.blobs.read(Digest(one.final_parameters())))["w"] for one in (other, market)
    )
    np.testing.assert_allclose(near, exact, atol=0.5)


@FULL
@pytest.mark.parametrize("crashes", [[2, 3], [1], [1, 2, 3, 4, 5, 6]])
def test_after_a_crash_it_is_replayed_to_the_same_bits(
    new_market: NewMarket, crashes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error left out by the codes is a part of the optimizer's stored and replayed state."""
    monkeypatch.setattr(snapshots, "SMALL", 0)
    market = new_market(settings=SELDOM, **ALONE)
    market.worker()
    for number in crashes:
        market.until(lambda number=number: closed(market) >= number)  # type: ignore[misc]
        market.crash()
    market.play(passes=100)
    check_formula_end(market)


@FULL
def test_a_job_larger_than_the_memory_gives_the_same_bits(new_market: NewMarket) -> None:
    market = staffed(new_market, settings=SELDOM | {"merge_memory": 0})
    market.play(passes=100)
    check_formula_end(market)


@FULL
def test_a_lie_that_is_taken_back_takes_its_updates_with_it(new_market: NewMarket) -> None:
    spec = {"rounds": 4, "tasks_per_round": 1, "audit": {"probability": 1.0}, "optimizer": {"name": "sgd", "lr": 0.125}}
    market = new_market(**SPEC | spec)
    market.worker(scaled(3.0)), market.worker(scaled(3.0)), market.worker()
    market.until(lambda: closed(market) == 2)
    false = [row.published_update for row in market.rounds() if row.published_update]
    for _ in range(3):
        market.worker()
    SimAuditor(market).play()
    assert market.events("rewound")
    check_formula_end(market)
    last = {row.published_update for row in market.rounds()}
    gone = [digest for digest in false if digest not in last]
    assert gone
    assert not any(market.context.blobs.has(digest) for digest in gone)


@FULL
def test_updates_are_kept_while_they_take_fewer_bytes_than_the_whole(new_market: NewMarket) -> None:
    market = new_market(**ALONE | {"rounds": 12, "tasks_per_round": 1})
    market.worker()
    worth = blob_cleanup.updates_worth(market.the_job())
    least = blob_cleanup.kept_newest(jobs.load_spec(market.the_job())) + worth
    market.until(lambda: closed(market) == 11)
    assert kept_updates(market) == list(range(11 - least, 11))
    rows = market.rounds()
    with market.reading() as reader:
        path = blob_needs.leading_to(reader, market.job, 10, 3)
        first = blob_needs.leading_to(reader, market.job, 1, 9)
        none = blob_needs.leading_to(reader, market.job, -1, 9)
    assert [step.updated for step in path] == [rows[number].updated for number in (10, 9, 8)]
    assert [step.before for step in path] == [rows[number].parameters for number in (10, 9, 8)]
    assert [step.update for step in path] == [rows[number].published_update for number in (10, 9, 8)]
    assert [step.before for step in first] == [rows[1].parameters, rows[0].parameters]
    assert none == []
    market.play()
    assert market.state() == JobState.FINISHED
    assert kept_updates(market) == []
    assert market.context.blobs.has(Digest(market.final_parameters()))


NO_CODEC = [("bf16", "rounds buffers too"), ("none", "no codecs of this name|none")]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("name", "reason"), NO_CODEC)
def test_a_downlink_that_is_no_codec_for_gradients_is_refused(
    new_market: NewMarket, name: str, reason: str, first: bool
) -> None:
    market = new_market(**ALONE)
    downlink = {"codec": "int8", "first": {"codec": name, "rounds": 1}} if first else {"codec": name}
    spec = jobs.load_spec(market.the_job()).model_copy(update={"downlink": downlink})
    with pytest.raises(JobRefused, match=reason) as refused:
        admit_job(market.context, type(spec).model_validate(spec.model_dump(mode="json")), "requester")
    assert refused.value.field == ("downlink.first.codec" if first else "downlink.codec")


@pytest.mark.parametrize(("codec_", "first"), [("fp32", "int4"), ("two_bit", "fp32")])
def test_updates_are_small_in_all_rounds_or_in_none(codec_: str, first: str) -> None:
    with pytest.raises(ValidationError, match="in all rounds, or in none"):
        Downlink.model_validate({"codec": codec_, "first": {"codec": first, "rounds": 2}})


def test_a_job_without_first_updates_is_published_as_before() -> None:
    assert Downlink(codec="int8").model_dump(mode="json") == {"codec": "int8"}


def test_an_update_is_of_the_parameters_that_the_round_before_left() -> None:
    first, third = Round(number=0, parameters="at first", updated="after 0"), Round(number=2, updated="after 2")
    rows = {0: first, 2: third}
    found = [_find_changed_parameters(rows, number) for number in range(5)]
    assert found == ["at first", "after 0", None, "after 2", None]
