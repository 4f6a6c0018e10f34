"""The accountant beside dp-accounting's, the noise beside the normal distribution, and attacks on a noised merge."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradmarket.market.features.private.holder_budget import HolderBudget, compute_epsilon
from gradmarket.market.gradient.aggregators import configure_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import encode_bounded_payload
from gradmarket.market.gradient.noise import GRID_BITS, Noise, _inverse, add_normal_noise, draw_normal
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Privacy
from gradmarket.market.rules import stopping
from tests.kit.whole_merge import merge_answers
from tests.lanes import FULL, leave_to_full

FP32, SEED = load_codec("fp32"), bytes(range(32))


VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "epsilon.json").read_text())["rows"]


@pytest.mark.parametrize("row", leave_to_full(VECTORS, 10), ids=str)
def test_the_accountant_finds_what_dp_accounting_finds(row: dict[str, Any]) -> None:
    """Its privacy loss distributions are exact but for their grid; its Renyi accountant is above, and never below."""
    found = compute_epsilon(row["noise_multiplier"], row["delta"], row["rounds"])
    assert row["pld"] is None or found == pytest.approx(row["pld"], rel=1e-7)
    assert found <= row["rdp"]


@given(st.floats(0.2, 50), st.integers(1, 5000), st.sampled_from([1e-8, 1e-5, 1e-2]))
def test_the_epsilon_found_has_the_delta_asked_for(multiplier: float, rounds: int, delta: float) -> None:
    """The formula, evaluated in another way: by scipy's normal distribution, in logarithms."""
    epsilon, mu = compute_epsilon(multiplier, delta, rounds), math.sqrt(rounds) / multiplier
    if epsilon == 0:
        assert 2 * scipy.stats.norm.cdf(mu / 2) - 1 <= delta
        return
    first = scipy.stats.norm.logsf(epsilon / mu - mu / 2)
    second = epsilon + scipy.stats.norm.logsf(epsilon / mu + mu / 2)
    assert math.exp(first) - math.exp(second) == pytest.approx(delta, rel=1e-3)


@given(st.floats(0.5, 20), st.floats(0.1, 50), st.sampled_from([1e-8, 1e-5]))
def test_the_rounds_allowed_are_the_most_that_fit(multiplier: float, epsilon: float, delta: float) -> None:
    if compute_epsilon(multiplier, delta, 1) > epsilon:
        assert HolderBudget(Privacy(noise_multiplier=multiplier, epsilon=epsilon, delta=delta)).rounds == 0
        return
    rounds = HolderBudget(Privacy(noise_multiplier=multiplier, epsilon=epsilon, delta=delta)).rounds
    assert compute_epsilon(multiplier, delta, rounds) <= epsilon < compute_epsilon(multiplier, delta, rounds + 1)


@pytest.mark.parametrize("multiplier", [0.0, 1e-300, 1e-100, 9e-4, 2e6, math.inf])
def test_noise_of_no_use_is_refused_in_words(multiplier: float) -> None:
    """Far too little of it overflowed the accountant."""
    with pytest.raises(ValueError, match="noise_multiplier"):
        Privacy(noise_multiplier=multiplier, epsilon=1e4, delta=0.4)


@pytest.mark.parametrize("multiplier", [1e-3, 6e-3, 1e6])
@pytest.mark.parametrize("delta", [1e-15, 0.1, 0.5])
def test_every_multiplier_that_is_taken_is_counted(multiplier: float, delta: float) -> None:
    assert 0.0 <= compute_epsilon(multiplier, delta, 1) <= compute_epsilon(multiplier, delta, 10**6) < math.inf


def test_the_tails_are_normal_too() -> None:
    """Of the words that give the smallest probabilities: the draw is scipy's quantile of them."""
    drawn = -_inverse(np.array([2.0**-k for k in range(1, 129)]))
    assert drawn == pytest.approx(scipy.stats.norm.isf([2.0**-k for k in range(1, 129)]), rel=1e-8, abs=1e-12)
    assert drawn.max() > 13


@pytest.mark.parametrize("deviation", [1.0, 0.3, 1e-5, 3e7])
def test_a_noised_sum_lies_on_a_grid_that_hides_the_last_bits(deviation: float) -> None:
    """Mironov 2012: of two neighbouring sums each published number must be possible for the other. All are multiples
    of one power of two, of at most 2^-20 deviations, and far in the tails noises are closer than that."""
    rng = np.random.default_rng(1)
    first = rng.normal(size=50_000) * deviation
    told, other = (add_normal_noise(total, deviation, SEED, 0) for total in (first, first + 0.37 * deviation))
    grid = math.ldexp(1.0, math.frexp(deviation)[1] - 1 - GRID_BITS)
    assert grid <= deviation * 2.0**-20
    assert all((numbers / grid == np.rint(numbers / grid)).all() for numbers in (told, other))
    spacing = (
        2.0**-53 * scipy.stats.norm.sf(9.0) / scipy.stats.norm.pdf(9.0)
    )  # of float64 probabilities, by the density there
    assert spacing * deviation < grid / 1000


def test_noise_is_normal_and_a_seed_alone_decides_it() -> None:
    drawn = draw_normal(SEED, 0, 200_000)
    assert scipy.stats.kstest(drawn, "norm").pvalue > 1e-4
    assert (draw_normal(SEED, 1000, 50) == drawn[1000:1050]).all()
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    assert not (draw_normal(bytes(32), 0, 100) == drawn[:100]).any()


def test_a_noised_merge_is_the_mean_and_its_noise_in_any_order() -> None:
    layout = Layout((LayoutEntry("loss", (), "loss"), LayoutEntry("w", (1000,), "gradient")))
    rule, settings = configure_aggregator("mean", {}, 3, 3)
    plain = Recipe(layout, FP32, rule, settings, 10.0, 3)
    noised = Recipe(layout, FP32, rule, settings, 10.0, 3, Noise(30.0, SEED))
    rng = np.random.default_rng(0)
    answers = [
        MergedAnswer(
            encode_bounded_payload(
                layout, {"loss": np.float32(1), "w": rng.normal(size=1000).astype("f4")}, FP32, b"", (), 10.0
            ),
            b"",
        )
        for _ in range(3)
    ]
    one, other = merge_answers(noised, answers), merge_answers(noised, answers[::-1])
    assert (one["w"] == other["w"]).all()
    added = one["w"] - merge_answers(plain, answers)["w"]
    np.testing.assert_allclose(added, draw_normal(SEED, 1, 1000) * 10.0, atol=1e-5)
    assert one["loss"] == 1.0, "the loss gets none, and is told to nobody"


def private(**more: Any) -> dict[str, Any]:
    data = {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "holders": ["0x" + "11" * 20], "least_rows": 8}
    return {
        "name": "p", "model": {"architecture": "mlp"}, "data": data, "step": {"rows": 8}, "optimizer": {"lr": 0.1},
        "rounds": 100, "price": "1", "privacy": {"noise_multiplier": 4, "epsilon": 8, "delta": 1e-5}, **more,
    }  # fmt: skip


def test_the_job_ends_at_its_epsilon() -> None:
    spec = JobSpec.model_validate(private())
    assert spec.privacy is not None
    rounds = HolderBudget(spec.privacy).rounds
    assert 1 < rounds < 100
    assert stopping.find_stop_reason(spec.ending, rounds - 2, (), 0) == ""
    assert "of epsilon 8 is spent" in stopping.find_stop_reason(spec.ending, rounds - 1, (), 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"ready": "digits"}}, "only rows that stay with their holders"),
        ({"aggregator": {"name": "median"}}, "moves only a plain mean"),
        ({"privacy": {"noise_multiplier": 0.1, "epsilon": 1, "delta": 1e-5}}, "a single round spends"),
    ],
)
def test_settings_whose_results_the_noise_does_not_hide_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JobSpec.model_validate(private() | changes)


HOLDERS, ROWS, WIDTH, BOUND = 8, 12, 64, 1.0


def published(noise: float) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model of random labels, which it can only learn by heart: trained by rounds of `HOLDERS` local updates.

    Returns it, and the rows of all holders.
    """
    torch.manual_seed(0)
    x, y = torch.randn(HOLDERS, ROWS, WIDTH), torch.randint(2, (HOLDERS, ROWS))
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 2))
    names = {name: tuple(value.shape) for name, value in model.named_parameters()}
    layout = Layout((LayoutEntry("loss", (), "loss"), *(LayoutEntry(n, s, "gradient") for n, s in names.items())))
    rule, settings = configure_aggregator("mean", {}, HOLDERS, HOLDERS)
    for number in range(30):
        start, answers = {name: value.detach().clone() for name, value in model.named_parameters()}, []
        for holder in range(HOLDERS):
            model.load_state_dict(start)
            inner = torch.optim.SGD(model.parameters(), lr=0.2)
            for _ in range(5):
                inner.zero_grad()
                nn.functional.cross_entropy(model(x[holder]), y[holder]).backward()
                inner.step()
            change = {name: (start[name] - value.detach()).numpy() for name, value in model.named_parameters()}
            payload = encode_bounded_payload(layout, {"loss": np.float32(0), **change}, FP32, b"", (), BOUND)
            answers.append(MergedAnswer(payload, b""))
        drawn = Noise(noise * BOUND, number.to_bytes(32, "big")) if noise else None
        mean = merge_answers(Recipe(layout, FP32, rule, settings, BOUND, HOLDERS, drawn), answers)
        model.load_state_dict(
            {name: value - torch.from_numpy(mean[name]).view(value.shape) for name, value in start.items()}
        )
    return model, x.view(-1, WIDTH), y.view(-1)


def measure_membership(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """How often a member's loss is below a stranger's (Yeom et al. 2018): a half where the model discloses nothing."""
    generator = torch.Generator().manual_seed(1)
    others = torch.randn(len(x), WIDTH, generator=generator), torch.randint(2, (len(x),), generator=generator)
    losses = [nn.functional.cross_entropy(model(a), b, reduction="none").detach() for a, b in ((x, y), others)]
    return float((losses[0][:, None] < losses[1][None, :]).float().mean())


@FULL
def test_membership_is_inferred_from_an_over_fitted_model_and_not_from_a_noised_one() -> None:
    assert measure_membership(*published(0.0)) > 0.85
    noised = Privacy(noise_multiplier=8.0, epsilon=5.0, delta=1e-3)
    assert HolderBudget(noised).rounds >= 30
    assert abs(measure_membership(*published(8.0)) - 0.5) < 0.15


def test_one_linear_step_over_one_row_is_that_row_and_is_not_under_the_noise() -> None:
    """Gradient inversion in closed form: the weight's gradient of a linear layer is its input times the bias's."""
    row, layer = torch.randn(16), nn.Linear(16, 3)
    nn.functional.cross_entropy(layer(row)[None], torch.tensor([1])).backward()
    weight, bias = layer.weight.grad, layer.bias.grad
    assert weight is not None
    assert bias is not None
    torch.testing.assert_close(weight[1] / bias[1], row)
    layout = Layout(
        (LayoutEntry("loss", (), "loss"), LayoutEntry("w", (3, 16), "gradient"), LayoutEntry("b", (3,), "gradient"))
    )
    rule, settings = configure_aggregator("mean", {}, 1, 1)
    payload = encode_bounded_payload(
        layout, {"loss": np.float32(0), "w": weight.numpy(), "b": bias.numpy()}, FP32, b"", (), 1.0
    )
    seen = merge_answers(Recipe(layout, FP32, rule, settings, 1.0, 1, Noise(4.0, SEED)), [MergedAnswer(payload, b"")])
    guessed = seen["w"].reshape(3, 16)[1] / seen["b"].reshape(-1)[1]
    assert abs(np.corrcoef(guessed, row.numpy())[0, 1]) < 0.7
