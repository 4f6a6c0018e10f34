"""How many inner steps are proposed, and which codec: the fewest that keep the link's share small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.commands.proposing import (
    CODECS,
    IDLE,
    MOST_STEPS,
    SPARES,
    HomeLink,
    TaskSize,
    propose_momentum,
    propose_step,
)
from gradmarket.market.gradient.codecs import load_codec

SPEEDS = st.floats(0.1, 10_000)
SIZES = st.integers(1, 10**9)


def size(parameters: int, step_s: float) -> TaskSize:
    up = {name: load_codec(name).packed_bytes(parameters) for name in CODECS}
    down = {name: count if load_codec(name).GRADIENTS_ONLY else 4 * parameters for name, count in up.items()}
    return TaskSize(step_s, down, up)


def link_s(of: TaskSize, link: HomeLink, name: str) -> float:
    return of.down[name] * 8e-6 / link.down + of.up[name] * 8e-6 / link.up


@given(SIZES, st.floats(1e-4, 1e3), SPEEDS, SPEEDS)
def test_the_fewest_steps_that_keep_the_links_share_small(
    parameters: int, step_s: float, down: float, up: float
) -> None:
    of, link = size(parameters, step_s), HomeLink(down, up)
    found = propose_step(of, link)
    assert 1 <= found.steps <= MOST_STEPS
    assert found.link_s == pytest.approx(link_s(of, link, found.codec))
    assert found.task_s == pytest.approx(found.link_s + found.steps * step_s)
    if found.steps < MOST_STEPS:
        assert found.idle <= IDLE * (1 + 1e-9)
    if found.steps > 1:
        fewer = (found.steps - 1) * step_s
        assert found.link_s / (found.link_s + fewer) > IDLE * (1 - 1e-9)


@given(SIZES, st.floats(1e-4, 1e3), SPEEDS, SPEEDS)
def test_no_codec_that_loses_less_does_with_as_few_steps(
    parameters: int, step_s: float, down: float, up: float
) -> None:
    of, link = size(parameters, step_s), HomeLink(down, up)
    found = propose_step(of, link)
    for name in CODECS[: CODECS.index(found.codec)]:
        assert link_s(of, link, found.codec) < link_s(of, link, name)
        assert found.steps <= max(1.0, SPARES * found.plain_steps)
        assert found.plain_steps > 1


@given(SIZES, st.floats(1e-4, 1e3), SPEEDS, SPEEDS)
def test_a_faster_link_never_asks_for_more_steps(parameters: int, step_s: float, down: float, up: float) -> None:
    of = size(parameters, step_s)
    slow, fast = (propose_step(of, HomeLink(down * times, up * times)) for times in (1, 4))
    assert fast.steps <= slow.steps or CODECS.index(fast.codec) < CODECS.index(slow.codec)


def test_by_hand() -> None:
    """Ten million parameters, a second a step: 40 MB down at 100 Mbit/s is 3.2 s, and up at 20 Mbit/s 16 s as fp32.

    In two bits it is 3.1 MB either way: 0.25 s and 1.25 s.
    """
    of = size(10_000_000, 1.0)
    home = propose_step(of, HomeLink(100.0, 20.0))
    assert (home.codec, home.steps, home.plain_steps) == ("two_bit", 29, 365)
    assert propose_step(of, HomeLink(100.0, 20.0), most=7).steps == 7
    assert propose_step(of, HomeLink(1e6, 1e6)).codec == "fp32"
    assert propose_step(of, HomeLink(1e6, 1e6)).steps == 1
    assert propose_step(size(10**9, 0.01), HomeLink(100.0, 20.0)).steps == MOST_STEPS


@pytest.mark.parametrize(
    ("rounds", "expected"), [(1, 0.3), (20, 0.3), (60, 0.5), (100, 0.7), (300, 0.9), (10_000, 0.9)]
)
def test_the_outer_momentum_averages_over_a_thirtieth_of_the_rounds(rounds: int, expected: float) -> None:
    assert propose_momentum(rounds) == expected
