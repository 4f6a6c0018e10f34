"""Workers that compute from the task's rows are not convicted, others are; each with its promised probability."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features import loss_change
from gradmarket.market.features.loss_change import (
    ALPHA,
    BLIND,
    CLEARS,
    CONVICTS,
    LEAST,
    PAUSE,
    RUNS,
    SHARE,
    Admission,
    Change,
    add_score,
    compute_score_weight,
    decide_change_verdict,
    honest_share,
    move_along_gradient,
)
from gradmarket.market.terms import ChangeVerdict
from gradmarket.market.wire.audit_messages import LARGEST_FALL

FINITE = st.floats(-1e6, 1e6)
SHARES = st.sampled_from([0.6, 0.75, 0.9, 0.97])


def played(passing: float, honest: float, audits: int, seed: int) -> Iterator[ChangeVerdict]:
    """Yields the verdict after each of `audits` scores, of which the share `passing` passes; of honest, `honest`."""
    total = 0.0
    for passes in np.random.default_rng(seed).random(audits) < passing:
        total = add_score(total, compute_score_weight(bool(passes), honest))
        yield decide_change_verdict(total)


def first_test(passing: float, honest: float, seed: int) -> ChangeVerdict:
    """How one whole test ends."""
    return next(found for found in played(passing, honest, 2000, seed) if found != ChangeVerdict.OPEN)


def test_a_score_passes_where_the_own_rows_lead_all_others() -> None:
    assert Change(2.0, (1.0, 1.5, -3.0)).passes
    assert Change(-1.0, (-2.0, -2.0, -3.0)).passes
    assert not Change(1.0, (0.5, 1.5, 0.5)).passes
    assert not Change(1.0, (1.0, 0.5, 0.5)).passes, "who changes nothing does not lead"
    assert not Change(0.0, (0.0, 0.0, 0.0)).passes


@given(FINITE, st.tuples(FINITE, FINITE, FINITE))
def test_a_change_s_score_is_within_one_and_positive_where_it_passes(own: float, others: tuple[float, ...]) -> None:
    change = Change(own, others)
    assert -1.0 <= change.score <= 1.0
    assert (change.score > 0.0) == change.passes


def test_a_loss_that_is_not_finite_has_not_fallen() -> None:
    change = loss_change.compute_change([1.0, math.nan, math.inf, 1.0], [math.nan, 1.0, math.inf, 0.5])
    assert change == Change(-LARGEST_FALL, (-LARGEST_FALL, -LARGEST_FALL, 0.5))
    assert not change.passes
    assert loss_change.compute_change([1.0, math.nan, 1.0, 1.0], [0.5, 1.0, math.inf, 0.9]).passes


@given(st.integers(0, 120), st.integers(0, 120))
def test_the_honest_share_is_below_what_was_seen_and_grows_with_it(passed: int, more: int) -> None:
    runs = passed + more
    found = honest_share(passed, runs)
    if runs < RUNS:
        assert found is None
    elif found is not None:
        assert LEAST <= found < passed / runs
        assert found < (honest_share(passed + 1, runs + 1) or 0.0)


def test_the_honest_share_is_clopper_and_pearson_s() -> None:
    assert honest_share(30, 30) == pytest.approx(0.05 ** (1 / 30))
    assert honest_share(90, 100) == pytest.approx(0.8362, abs=1e-4)
    assert honest_share(58, 100) is None, "half of honest gradients failing may be chance"


@given(SHARES, st.integers(0, 2**32))
def test_the_bound_holds_for_nineteen_of_twenty_calibrations(share: float, seed: int) -> None:
    passed = np.random.default_rng(seed).binomial(60, share, size=200)
    missed = np.mean([(honest_share(int(count), 60) or 0.0) > share for count in passed])
    assert missed < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 200)


def test_scores_weigh_nothing_before_enough_trusted_runs() -> None:
    assert compute_score_weight(True, None) == compute_score_weight(False, None) == 0.0
    assert honest_share(RUNS - 1, RUNS - 1) is None


@given(st.floats(LEAST, 0.999))
def test_a_pass_speaks_for_and_a_failure_against(honest: float) -> None:
    assert compute_score_weight(True, honest) < 0.0 < compute_score_weight(False, honest)
    mean = BLIND * compute_score_weight(True, honest) + (1 - BLIND) * compute_score_weight(False, honest)
    assert mean > 0.0, "who knows nothing of the rows drifts towards conviction"
    assert honest * compute_score_weight(True, honest) + (1 - honest) * compute_score_weight(False, honest) < 0.0


@pytest.mark.parametrize("share", [0.6, 0.75, 0.9])
def test_an_honest_test_convicts_no_more_often_than_is_promised(share: float) -> None:
    """By importance: under the blind share a conviction is common, and its weight gives its honest probability."""
    tests, sum_of_weights = 2000, 0.0
    for seed in range(tests):
        total = 0.0
        for passes in np.random.default_rng(seed).random(2000) < BLIND:
            total += compute_score_weight(bool(passes), share)
            if not CLEARS < total < CONVICTS:
                break
        sum_of_weights += math.exp(-total) if total >= CONVICTS else 0.0
    assert 0.0 < sum_of_weights / tests <= ALPHA


@pytest.mark.parametrize("share", [0.6, 0.75, 0.9])
def test_a_worker_blind_to_its_rows_is_rarely_cleared(share: float) -> None:
    ends = [first_test(BLIND, share, seed) for seed in range(1000)]
    assert ends.count(ChangeVerdict.HONEST) / len(ends) < 0.02
    assert ends.count(ChangeVerdict.CONVICTED) > 970


@given(SHARES, st.integers(0, 2**32))
def test_the_noisy_honest_are_not_convicted_and_the_blind_soon_are(share: float, seed: int) -> None:
    bound = honest_share(round(100 * share), 100) or LEAST
    assert ChangeVerdict.CONVICTED not in played(share, bound, 200, seed)
    assert ChangeVerdict.CONVICTED in played(BLIND, bound, 400, seed)
    assert first_test(0.0, bound, seed) == ChangeVerdict.CONVICTED


def test_a_sleeper_s_good_record_buys_it_a_few_lies_and_no_more() -> None:
    """Honest for a thousand audits: each test that cleared it is over, and saves nothing for the next one."""
    total, honest = 0.0, 0.9
    for _ in range(1000):
        total = add_score(total, compute_score_weight(True, honest))
    lies = 0
    while decide_change_verdict(total) != ChangeVerdict.CONVICTED:
        total, lies = add_score(total, compute_score_weight(False, honest)), lies + 1
    fresh = math.ceil(CONVICTS / compute_score_weight(False, honest))
    assert lies <= fresh + math.ceil(-CLEARS / compute_score_weight(False, honest))


def test_a_conviction_stands_until_its_scores_change() -> None:
    total = add_score(CONVICTS, compute_score_weight(False, 0.9))
    assert decide_change_verdict(total) == ChangeVerdict.CONVICTED
    assert decide_change_verdict(add_score(total, 0.0)) == ChangeVerdict.CONVICTED


def test_the_probe_is_as_long_as_it_is_meant_to_be_whatever_the_gradient_s_length() -> None:
    generator = np.random.default_rng(1)
    state = {"w": generator.standard_normal((4, 5)).astype(np.float32), "n": np.array(3, np.int64)}
    gradient = {"w": generator.standard_normal((4, 5)).astype(np.float32)}
    moved = move_along_gradient(state, gradient)
    step = state["w"] - moved["w"]
    assert np.linalg.norm(step) == pytest.approx(SHARE * np.linalg.norm(state["w"]), rel=1e-4)
    assert moved["n"] is state["n"]
    assert np.sum(step * gradient["w"]) > 0.0
    for factor in (1e-20, 1e20):
        other = move_along_gradient(state, {"w": gradient["w"] * np.float32(factor)})
        np.testing.assert_allclose(other["w"], moved["w"], rtol=1e-5)


def test_nothing_moves_nothing() -> None:
    state = {"w": np.ones(3, np.float32)}
    assert move_along_gradient(state, {"w": np.zeros(3, np.float32)}) is state


def play_changing_wallets(passing: float, rounds: int, places: int, seed: int) -> tuple[list[int], Admission]:
    """Answers of operators that leave after four each, in `places` of each round, judged two rounds later."""
    state, waiting, given = Admission(), list[list[bool]](), list[int]()
    random = np.random.default_rng(seed)
    for number in range(rounds):
        meanwhile = loss_change.count_places_meanwhile(4 * places * number, 4 * places)
        count = places if state.admits(number) else meanwhile
        given.append(count)
        waiting.append(list(random.random(count) < passing))
        for passes in waiting.pop(0) if len(waiting) > 2 else []:
            state = state.add(compute_score_weight(bool(passes), 0.9), number, 4 * places)
    return given, state


@pytest.mark.parametrize(("places", "most"), [(2, 0.025), (4, 0.018), (10, 0.015)])
@pytest.mark.parametrize("seed", range(5))
def test_noise_that_changes_wallets_loses_its_places_and_keeps_newcomers_out_of_no_stretch(
    seed: int, places: int, most: float
) -> None:
    """A quarter of all answers before; honest ones that leave as soon keep theirs."""
    tasks = 4 * places
    given, state = play_changing_wallets(loss_change.BLIND, 1000, places, seed)
    assert sum(given) <= most * 1000 * tasks, sum(given)
    stretch = math.ceil(1 / loss_change.RISK / tasks) + 1
    assert min(sum(given[start : start + stretch]) for start in range(1000 - stretch)) >= 1
    honest, state = play_changing_wallets(0.9, 1000, places, seed)
    assert sum(honest) >= places * (1000 - PAUSE * state.closings - 1)
    assert state.closings <= 1


@pytest.mark.parametrize(
    ("passes", "honest", "due"),
    [
        ([], 0.9, True),
        ([True], 0.9, True),
        ([False], 0.9, False),
        ([False] * 3, None, True),
        ([True, False], 0.9, False),
        ([True, True, False], 0.9, True),
    ],
)
def test_pay_that_waits_at_the_end_is_due_unless_noise_is_likelier(
    passes: list[bool], honest: float | None, due: bool
) -> None:
    assert loss_change.is_waiting_pay_due(passes, honest) is due
