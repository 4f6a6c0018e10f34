"""The accountant of rows that are drawn by chance beside dp-accounting's, the draw, and its secrecy."""

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from pydantic import TypeAdapter, ValidationError

from gradmarket.market.features.private.holder_budget import compute_epsilon
from gradmarket.market.features.private.holder_rows import draw_rows_by_chance
from gradmarket.market.features.private.row_budget import (
    build_row_spending,
    compute_row_rate,
    compute_spent_epsilon,
    count_affordable_uses,
)
from gradmarket.market.features.private.sampled_privacy import (
    SampledSteps,
    compute_sampled_epsilon,
    count_affordable_steps,
)
from gradmarket.market.job import JobSpec
from gradmarket.market.step import GradientStep, RowPrivacy, Step
from tests.lanes import leave_to_full
from tests.market.test_row_privacy import private

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "sampled_epsilon.json").read_text())["rows"]
ASKED = {"clip_norm": 1.0, "noise_multiplier": 1.0, "epsilon": 8.0, "delta": 1e-5, "sampling": "poisson"}


def spent(z: float, rate: float, steps: int, delta: float) -> float:
    return compute_sampled_epsilon((SampledSteps(z, rate, steps),), delta)


@pytest.mark.parametrize("row", leave_to_full(VECTORS, 9), ids=str)
def test_the_accountant_finds_what_dp_accounting_finds(row: dict[str, Any]) -> None:
    """Both put the losses on grids of their own from above; its Renyi accountant is farther above."""
    found = spent(row["noise_multiplier"], row["rate"], row["steps"], row["delta"])
    assert found == pytest.approx(row["pld"], rel=3e-3, abs=3e-3)
    assert found <= row["rdp"] + 1e-3


def test_drawing_rows_by_chance_spends_a_seventh_of_the_epsilon() -> None:
    """256 rows a step, noise of one clip norm: 26 epochs spend 34, and draws 5.1."""
    whole, drawn = RowPrivacy.model_validate(ASKED | {"sampling": "epochs", "epsilon": 40.0}), RowPrivacy(**ASKED)  # type: ignore[arg-type]
    assert compute_spent_epsilon(whole, math.ceil(1000 / (10_000 // 256))) == pytest.approx(34.02, abs=0.01)
    assert compute_spent_epsilon(drawn, 1000, compute_row_rate(drawn, 256, 10_000)) == pytest.approx(5.128, abs=0.005)


@pytest.mark.parametrize(("z", "uses", "delta"), [(1.0, 10, 1e-5), (4.0, 100, 1e-12), (0.5, 1, 1e-3), (50.0, 1, 1e-15)])
def test_a_row_that_is_in_every_step_is_counted_as_without_chance(z: float, uses: int, delta: float) -> None:
    assert spent(z, 1.0, uses, delta) == pytest.approx(compute_epsilon(z, delta, uses), rel=1e-4)
    assert spent(z, 0.999, uses, delta) <= compute_epsilon(z, delta, uses) * (1 + 1e-4)


def test_steps_of_unlike_jobs_add_up() -> None:
    parts = SampledSteps(1.0, 0.02, 400), SampledSteps(1.0, 0.02, 600)
    assert compute_sampled_epsilon(parts, 1e-6) == pytest.approx(spent(1.0, 0.02, 1000, 1e-6), rel=1e-4)
    mixed = compute_sampled_epsilon((SampledSteps(3.0, 1.0, 4), SampledSteps(1.0, 0.02, 400)), 1e-6)
    assert max(spent(1.0, 0.02, 400, 1e-6), compute_epsilon(3.0, 1e-6, 4)) < mixed
    assert mixed < spent(1.0, 0.02, 400, 5e-7) + compute_epsilon(3.0, 5e-7, 4), (
        "less than both bounds one after the other"
    )
    assert compute_sampled_epsilon((), 1e-6) == spent(1.0, 0.5, 0, 1e-6) == 0.0


@pytest.mark.parametrize(("z", "rate", "epsilon"), [(1.0, 0.0256, 8.0), (4.0, 0.3, 1.0), (0.5, 0.01, 1.0)])
def test_the_steps_allowed_are_the_most_that_fit(z: float, rate: float, epsilon: float) -> None:
    most = count_affordable_steps(z, rate, 1e-5, epsilon)
    assert (spent(z, rate, most, 1e-5) if most else 0.0) <= epsilon < spent(z, rate, most + 1, 1e-5)


def test_each_row_is_drawn_apart_from_the_others_with_its_probability() -> None:
    draws = np.zeros((4000, 20))
    for number in range(len(draws)):
        draws[number, draw_rows_by_chance(number.to_bytes(32, "big"), 20, 5, 20)] = 1
    deviation = math.sqrt(0.25 * 0.75 / len(draws))
    assert abs(draws.mean(0) - 0.25).max() < 5 * deviation
    together = np.corrcoef(draws.T) - np.eye(20)
    assert abs(together).max() < 5 / math.sqrt(len(draws))
    assert np.var(draws.sum(1)) == pytest.approx(20 * 0.25 * 0.75, rel=0.15), "their number is by chance too"


def test_no_more_are_drawn_than_there_is_room_for() -> None:
    drawn = [draw_rows_by_chance(bytes((seed,)), 30, 10, 11) for seed in range(200)]
    assert {len(rows) for rows in drawn} >= {9, 10, 11}
    assert max(map(len, drawn)) == 11
    assert draw_rows_by_chance(b"", 7, 7, 7) == list(range(7))


def delta_of(first: np.ndarray, second: np.ndarray, apart: float, epsilon: float) -> float:
    """The least delta of two densities at this epsilon, whichever comes first."""
    factor = math.exp(epsilon)
    return max(float((a - factor * b).clip(0).sum()) * apart for a, b in ((first, second), (second, first)))


@pytest.mark.parametrize(("room", "others"), product((1, 2), ((1.0, 1.0), (-1.0, 1.0), (0.0, 0.0))))
def test_drawing_anew_without_room_spends_no_more(room: int, others: tuple[float, float]) -> None:
    """Three rows of which each is drawn with 0.4 and at most `room`: densities by integration, all draws counted."""
    rate, z = 0.4, 0.8
    x, apart = np.linspace(-12, 12, 4801, retstep=True)
    densities = [np.zeros_like(x), np.zeros_like(x)]
    whole = 0.0
    for drawn in product((0, 1), repeat=3):
        if sum(drawn) > room:
            continue
        odds = math.prod(rate if one else 1 - rate for one in drawn)
        whole += odds
        rest = drawn[1] * others[0] + drawn[2] * others[1]
        for density, part in zip(densities, (1.0, 0.0), strict=True):
            density += odds * scipy.stats.norm.pdf(x, rest + drawn[0] * part, z)
    for delta in (0.2, 1e-2, 1e-4):
        assert delta_of(*(density / whole for density in densities), apart, spent(z, rate, 1, delta)) <= delta * 1.001


def test_a_reader_of_the_draw_learns_far_more_than_is_counted() -> None:
    """The reason for a holder's own secret: where the service names the seed of the draw, a step with the row is a
    Gaussian mechanism that it sees, and delta at the counted epsilon is 1,000 times the promised one."""
    z, rate, steps, delta = 1.0, 0.0256, 1000, 1e-5
    counted = spent(z, rate, steps, delta)

    def gaussian(uses: int) -> float:
        mu = math.sqrt(uses) / z
        return float(
            scipy.stats.norm.cdf(mu / 2 - counted / mu)
            - math.exp(counted) * scipy.stats.norm.cdf(-mu / 2 - counted / mu)
        )

    known = sum(scipy.stats.binom.pmf(uses, steps, rate) * gaussian(uses) for uses in range(1, 100))
    assert known > 1000 * delta


def test_a_step_has_room_for_four_deviations_more_than_its_mean() -> None:
    step = TypeAdapter(Step).validate_python({"rows": 64, "microbatch": 40, "per_row": ASKED})
    assert (step.rows, step.room, step.pass_sizes, step.passes) == (64, 96, (40, 16), 3)
    assert scipy.stats.binom.sf(step.room, 10_000, 64 / 10_000) < 1e-3
    assert GradientStep(rows=64).room == 64


def test_a_job_of_draws_ends_by_their_account() -> None:
    drawn = JobSpec.model_validate(private({"per_row": ASKED}, rounds=1000))
    rows, asked = build_row_spending(drawn), drawn.step.per_row
    assert rows is not None
    assert asked is not None
    assert rows.rate == 8 / 32
    assert rows.rounds == count_affordable_uses(asked, 8 / 32) == rows.uses_after(rows.rounds)
    assert rows.spent(rows.rounds) <= 8.0 < rows.spent(rows.rounds + 1)
    local = private({"per_row": ASKED, "kind": "local", "steps": 400, "optimizer": {"lr": 0.1}})
    with pytest.raises(ValidationError, match=r"draws a row 400 times with probability 0\.25 where a holder has 32"):
        JobSpec.model_validate(local)
    with pytest.raises(ValidationError, match=r'leave it out, and name "sampling" in step\.per_row'):
        JobSpec.model_validate(private({}, sampling="poisson"))
    seeded = private({"per_row": ASKED | {"seed": 1}})
    with pytest.raises(ValidationError, match="seed"):
        JobSpec.model_validate(seeded)


def test_the_usual_way_of_taking_rows_is_the_publication_that_it_was() -> None:
    kept = RowPrivacy.model_validate(ASKED | {"sampling": "epochs"}).model_dump(mode="json")
    assert "sampling" not in kept
    assert RowPrivacy.model_validate(ASKED).model_dump(mode="json")["sampling"] == "poisson"
