"""Whole aggregations: the sum is that of the staying holders, to the bit, or nothing is unmasked."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import collector
from gradmarket.market.features.secure_sums.ring import fixed_point
from gradmarket.market.features.secure_sums.sum_messages import SurvivorsProposed, parse_step_message
from gradmarket.market.gradient.accumulate import Accumulator
from tests.kit.aggregation_play import STEPS, AggregationPlay, Played
from tests.lanes import FULL


@st.composite
def plays(draw: st.DrawFn) -> AggregationPlay:
    """At most a third drop out, each before any step."""
    count = draw(st.integers(4, 40))
    gone = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count // 3))
    drops = {number: draw(st.integers(1, STEPS)) for number in gone}
    most = draw(st.sampled_from((1, 1000, 2**20, 2**40)))
    corrupt = max(1, count // 10)
    return AggregationPlay(count, 33, most, corrupt, count // 3, draw(st.integers(0, 2**32)), drops)


@FULL
@given(plays())
@settings(max_examples=min(25, settings().max_examples))
def test_the_sum_is_that_of_the_staying_holders(play: AggregationPlay) -> None:
    played = Played(play).to(STEPS)
    assert played.masked.keys() == {number for number in range(play.count) if play.present(number, 3)}
    assert (played.sum() == played.plain()).all()


@given(st.data())
@settings(max_examples=min(20, settings().max_examples))
def test_where_too_many_drop_out_nothing_is_unmasked(data: st.DataObject) -> None:
    count = data.draw(st.integers(6, 20))
    step = data.draw(st.integers(1, STEPS))
    gone = data.draw(st.permutations(range(count)))[: count // 2 + 1]
    play = AggregationPlay(count, 10, 100, 1, count // 3, drops=dict.fromkeys(gone, step))
    played = Played(play)
    with pytest.raises(Refused, match=r"are needed|at least|must have"):
        played.to(STEPS).sum()
    if step < STEPS:
        assert played.answers == {}


@FULL
def test_a_sparse_graph_gives_the_same_sum() -> None:
    drops = {number: 1 + number % STEPS for number in range(0, 120, 3)}
    play = AggregationPlay(120, 50, 2**20, 12, 40, drops=drops)
    assert 0 < 2 * play.aggregation.plan.cycles < 100
    played = Played(play).to(STEPS)
    assert (played.sum() == played.plain()).all()


@FULL
def test_hundreds_of_holders_with_a_third_dropping_out_have_their_sum() -> None:
    """`make bench ONLY=private.secagg` plays a thousand."""
    rng = np.random.default_rng(7)
    drops = {int(number): int(rng.integers(1, STEPS + 1)) for number in rng.permutation(300)[:100]}
    play = AggregationPlay(300, 64, 2**20, 20, 100, drops=drops)
    played = Played(play).to(STEPS)
    assert len(played.answers) == 200
    assert (played.sum() == played.plain()).all()


def test_the_mean_has_the_bits_of_the_exact_accumulator() -> None:
    rng = np.random.default_rng(3)
    count, size, bound = 12, 200, 0.37
    point = fixed_point(bound, count)
    vectors = rng.uniform(-bound, bound, (count, size)).astype(np.float32)
    codes = np.stack([point.integers(vector) for vector in vectors])
    play = AggregationPlay(count, size, point.most, 1, 4, drops={3: 3, 7: 1})
    play.integers = codes
    played = Played(play).to(STEPS)
    plain = Accumulator(size, bound, count)
    for number in played.masked:
        plain.add(np.ldexp(codes[number].astype(np.float32), point.exponent))
    mean = point.mean(played.sum(), len(played.masked))
    assert (mean.view(np.uint32) == plain.mean().view(np.uint32)).all()
    exact = vectors[sorted(played.masked)].astype(np.float64).mean(axis=0)
    assert np.abs(mean - exact).max() < 2.0**point.exponent + 2.0**-26  # half a unit each, and a float32's rounding


def test_a_masked_vector_looks_uniform() -> None:
    """Chi-squared over bytes, 255 degrees of freedom: between the quantiles 1e-6 and 1 - 1e-6. All integers are 0."""
    play = AggregationPlay(5, 100_000, 1, 1, 0)
    play.integers = np.zeros((5, 100_000), np.int64)
    played = Played(play).to(2)
    played.mask()
    assert played.total is not None
    counts = np.bincount(played.total.view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi = float(((counts - expected) ** 2 / expected).sum())
    assert 160 < chi < 376
    words = played.total.astype(np.float64) / 2**32
    assert abs(words.mean() - 0.5) < 5 / np.sqrt(12 * words.size)
    assert abs(np.corrcoef(words[:-1], words[1:])[0, 1]) < 5 / np.sqrt(words.size)


def test_a_restarted_holder_repeats_its_messages() -> None:
    play = AggregationPlay(6, 10, 100, 1, 1)
    first, again = Played(play).to(3), Played(play).to(3)
    assert (first.keys, first.shares, first.masked) == (again.keys, again.shares, again.masked)


def test_every_message_is_the_same_after_json() -> None:
    play = AggregationPlay(6, 10, 100, 1, 2, drops={1: 3})
    played = Played(play).to(STEPS)
    sharers, lists = collector.shares_for_holders(played.terms, played.shares)
    messages: list[BaseModel] = [
        collector.neighbour_keys(played.terms, played.keys)[0],
        lists[0],
        SurvivorsProposed(survivors=played.survivors),
        collector.unmask_requests(played.terms, played.survivors, played.signatures, played.masked)[0],
    ]
    said: list[Mapping[int, BaseModel]] = [
        played.keys, played.shares, played.masked, played.signatures, played.answers,
    ]  # fmt: skip
    for message in (*messages, *(one for step in said for one in step.values())):
        assert type(message).model_validate_json(message.model_dump_json()) == message
    for step, each in enumerate(said, start=1):
        assert {
            number: parse_step_message(step, one.model_dump_json().encode()) for number, one in each.items()
        } == each
    for step in (0, STEPS + 1):
        with pytest.raises(Refused, match="the steps 1 to 5"):
            parse_step_message(step, b"{}")
    with pytest.raises(Refused, match="the message of step 3 cannot be read: holder"):
        parse_step_message(3, b"{}")
    assert sharers == played.sharers
    for wrong in ({"survivors": "ff"}, {"survivors": "0x"}, {"survivors": "0x" + "00" * 300}, {"survivors": 5}):
        with pytest.raises(ValidationError):
            SurvivorsProposed.model_validate(wrong)
