"""Cheats at pay by worth and their honest twins, each one answer of a round that moves along a bowl."""

from functools import partial

import numpy as np
import pytest

from gradmarket.market.features.private.group_worth import KNOWN_BYTES, GroupSteps, known_updates
from gradmarket.market.features.private.shapley import draw_orders
from gradmarket.market.gradient import inspection
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.terms import Hash

SIZE, COUNT = 200, 4
LAYOUT = Layout((LayoutEntry("loss", (), "loss"), LayoutEntry("w", (SIZE,), "gradient")))
NORMAL = np.random.default_rng(7)
PAST = [NORMAL.standard_normal(SIZE) for _ in range(6)]
"""Parameters that rounds started from, the latest first; the first is this round's."""
BEST = NORMAL.standard_normal(SIZE)
TOWARDS = PAST[0] - BEST
HONEST = [0.3 * TOWARDS + 0.1 * NORMAL.standard_normal(SIZE) for _ in range(COUNT)]


def bowl(parameters: Arrays) -> float:
    return float(np.square(parameters["w"].astype(float) - BEST).sum())


def sent(answer: np.ndarray) -> MergedAnswer:
    tensors = {"loss": np.zeros((), np.float32), "w": answer.astype(np.float32)}
    return MergedAnswer(inspection.encode_bounded_payload(LAYOUT, tensors, load_codec("fp32"), b"", (), 1e6), b"", 1.0)


def shares(answers: list[np.ndarray], earlier: int = 5) -> tuple[float, ...]:
    before, *rest = ({"w": one.astype(np.float32)} for one in PAST)
    steps = GroupSteps(LAYOUT, load_codec("fp32"), before, [sent(one) for one in answers], 1.0, rest[:earlier])
    return steps.worths(draw_orders(len(answers), 2, Hash(bytes(32))), bowl).shares


@pytest.mark.parametrize("ago", range(1, 6))
def test_an_update_of_rounds_ago_is_worth_nothing_and_an_honest_answer_is(ago: int) -> None:
    replayed = PAST[ago] - PAST[ago - 1]
    aligned = replayed * np.sign(replayed @ TOWARDS)
    found = shares([aligned, *HONEST[1:]])
    assert found[0] < 1e-3
    assert min(found[1:]) > 0.2


def test_updates_older_than_the_kept_ones_can_be_sent_back() -> None:
    """Only kept updates are taken out: their number depends on the model's size."""
    replayed = PAST[5] - PAST[4]
    assert shares([replayed * np.sign(replayed @ TOWARDS), *HONEST[1:]], earlier=2)[0] > 0.05


def test_the_parameters_themselves_and_a_mix_of_updates_are_worth_nothing() -> None:
    for answer in (0.3 * PAST[0], PAST[0] - PAST[4], PAST[1] + PAST[3] - 2 * PAST[0]):
        assert shares([answer, *HONEST[1:]])[0] < 1e-3


def test_noise_nothing_and_a_changed_sign_are_worth_little_beside_honest_answers() -> None:
    noise = NORMAL.standard_normal(SIZE) * np.linalg.norm(HONEST[0]) / SIZE**0.5
    assert shares([noise, *HONEST[1:]])[0] < 0.1
    for answer in (np.zeros(SIZE), -HONEST[0]):
        assert shares([answer, *HONEST[1:]])[0] == 0.0


def test_half_of_an_answer_is_worth_less_and_twice_no_more_than_the_median_length() -> None:
    honest, *rest = shares(HONEST, earlier=0)
    assert shares([0.5 * HONEST[0], *HONEST[1:]], earlier=0)[0] < 0.5 * honest
    twice = shares([2.0 * HONEST[0], *HONEST[1:]], earlier=0)[0]
    assert twice == pytest.approx(shares([20.0 * HONEST[0], *HONEST[1:]], earlier=0)[0], rel=1e-3)
    assert twice < 1.1 * max(honest, *rest)


def test_a_copy_is_worth_as_much_as_the_copied_and_both_together_no_more_than_two() -> None:
    """Nothing in two equal answers shows whose rows they are of: the copy's pay is taken from all others."""
    alone = shares(HONEST, earlier=0)
    copied = shares([HONEST[0], *HONEST], earlier=0)
    assert copied[0] == pytest.approx(copied[1], rel=0.05)
    assert alone[0] < copied[0] + copied[1] < 2 * alone[0]
    assert all(now < before for now, before in zip(copied[1:], alone, strict=True))


def test_a_step_of_a_steep_bowl_is_worth_its_slope_in_one_answer_or_two_halves() -> None:
    """Where steps overshoot, two half answers were worth more than their sum: half of the square was counted twice."""
    steep = partial(_steep, 3.0)
    before, whole = {"w": PAST[0].astype(np.float32)}, 0.8 * TOWARDS
    halves = [MergedAnswer(sent(whole).data, b"", 0.5), MergedAnswer(sent(whole).data, b"", 0.5)]
    other = sent(HONEST[1] * np.linalg.norm(whole) / np.linalg.norm(HONEST[1]))
    worth = [
        GroupSteps(LAYOUT, load_codec("fp32"), before, answers, len(answers) / 2).worths(
            draw_orders(len(answers), 20, Hash(bytes(32))), steep
        )
        for answers in ([MergedAnswer(sent(whole).data, b"", 1.0), other], [*halves, other])
    ]
    assert sum(worth[1].values[:2]) <= 1.05 * worth[0].values[0]


def _steep(by: float, parameters: Arrays) -> float:
    return 1000.0 + by * bowl(parameters)


def test_fewer_updates_of_a_small_or_large_model_are_known_and_two_at_least() -> None:
    sizes = {10: 2, SIZE: 6, 5000: 64, KNOWN_BYTES // 8 // 10: 10, KNOWN_BYTES: 2}
    for size, known in sizes.items():
        entries = (LayoutEntry("loss", (), "loss"), LayoutEntry("w", (size,), "gradient"))
        assert known_updates(Layout(entries)) == known
