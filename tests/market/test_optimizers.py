"""Each optimizer against torch's, its decay groups, and the clip before it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import CHUNK, Vector
from gradmarket.market.gradient.norm import clip_gradient, compute_norm
from gradmarket.market.gradient.optimizers import _newton_schulz, load_optimizer

SHAPES = {"layer.weight": (9, 5), "layer.bias": (9,), "scale": ()}
SGD, ADAMW = load_optimizer("sgd"), load_optimizer("adamw")


def drawn(seed: int, scale: float = 1.0) -> dict[str, Vector]:
    generator = np.random.default_rng(seed)
    return {name: np.asarray(scale * generator.standard_normal(shape), np.float32) for name, shape in SHAPES.items()}


def ours(name: str, settings: dict[str, object], rates: list[float]) -> dict[str, Vector]:
    rule = load_optimizer(name)
    chosen = rule.Settings(**settings)
    parameters = drawn(0)
    memory = rule.start(parameters, chosen)
    for step, lr in enumerate(rates):
        parameters, memory = rule.step(parameters, drawn(step + 1), memory, lr, chosen)
    return parameters


def theirs(kind: type[torch.optim.Optimizer], settings: dict[str, object], rates: list[float]) -> dict[str, Vector]:
    parameters = {name: torch.nn.Parameter(torch.from_numpy(values.copy())) for name, values in drawn(0).items()}
    rule = kind(parameters.values(), lr=rates[0], **settings)
    for step, lr in enumerate(rates):
        rule.param_groups[0]["lr"] = lr
        for name, values in drawn(step + 1).items():
            parameters[name].grad = torch.from_numpy(values)
        rule.step()
    return {name: parameter.detach().numpy() for name, parameter in parameters.items()}


SGD_CASES = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "weight_decay": 0.01},
]
ADAMW_CASES = [
    ({}, {}),
    (
        {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.2},
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2},
    ),
]
RATES = [0.1 / (step + 1) for step in range(20)]


def assert_close(found: dict[str, Vector], expected: dict[str, Vector]) -> None:
    for name in SHAPES:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("settings", SGD_CASES, ids=str)
def test_sgd_is_torchs(settings: dict[str, object]) -> None:
    assert_close(ours("sgd", settings, RATES), theirs(torch.optim.SGD, settings, RATES))


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.6, "weight_decay": 0.01}], ids=str)
def test_nesterov_is_torchs(settings: dict[str, object]) -> None:
    torchs = {"momentum": 0.9, "nesterov": True, **settings}
    assert_close(ours("nesterov", settings, RATES), theirs(torch.optim.SGD, torchs, RATES))


def test_lamb_is_algorithm_2_in_float64() -> None:
    """Of You et al. 2020, written down a second time, tensor by tensor."""
    settings = {"weight_decay": 0.1, "epsilon": 1e-6}
    found = ours("lamb", settings, RATES)
    expected = {name: values.astype(np.float64) for name, values in drawn(0).items()}
    first, second = dict.fromkeys(SHAPES, 0.0), dict.fromkeys(SHAPES, 0.0)
    for step, lr in enumerate(RATES, 1):
        for name, slope in drawn(step).items():
            gradient = slope.astype(np.float64)
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            ratio = first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.999**step)) + 1e-6)
            update = ratio + 0.1 * expected[name]
            trust = np.linalg.norm(expected[name]) / np.linalg.norm(update)
            expected[name] = expected[name] - lr * trust * update
    for name in SHAPES:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-4, atol=2e-5)


def test_lamb_moves_a_tensor_of_zeros_by_the_plain_rate() -> None:
    rule, start = load_optimizer("lamb"), {"p": np.zeros(4, np.float32)}
    moved, _ = rule.step(start, {"p": np.ones(4, np.float32)}, rule.start(start, rule.Settings()), 0.1, rule.Settings())
    np.testing.assert_allclose(moved["p"], -0.1, rtol=1e-5)


def test_lars_is_algorithm_1_in_float64() -> None:
    """Of You, Gitman and Ginsburg 2017, written down a second time, tensor by tensor."""
    rates = [10.0 * rate for rate in RATES]
    found = ours("lars", {"weight_decay": 0.0005, "trust": 0.01}, rates)
    expected = {name: values.astype(np.float64) for name, values in drawn(0).items()}
    velocity = dict.fromkeys(SHAPES, 0.0)
    for step, lr in enumerate(rates, 1):
        for name, slope in drawn(step).items():
            lengths = np.linalg.norm(expected[name]), np.linalg.norm(slope.astype(np.float64))
            local = 0.01 * lengths[0] / (lengths[1] + 0.0005 * lengths[0])
            velocity[name] = 0.9 * velocity[name] + lr * local * (slope + 0.0005 * expected[name])
            expected[name] = expected[name] - velocity[name]
    for name in SHAPES:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-4, atol=2e-5)


@given(st.integers(-10, 10))
def test_a_lars_step_does_not_depend_on_the_gradients_length(exponent: int) -> None:
    rule = load_optimizer("lars")
    settings, start, slope = rule.Settings(), drawn(0), drawn(1)
    longer = {name: values * np.float32(2.0**exponent) for name, values in slope.items()}
    steps = [rule.step(start, each, rule.start(start, settings), 1.0, settings)[0] for each in (slope, longer)]
    for name in SHAPES:
        np.testing.assert_allclose(steps[0][name], steps[1][name], rtol=1e-6)


@pytest.mark.parametrize("still", ["parameter", "gradient"])
def test_lars_gives_a_tensor_of_zeros_the_trust_alone(still: str) -> None:
    rule, one, none = load_optimizer("lars"), np.ones(4, np.float32), np.zeros(4, np.float32)
    parameter, slope = (none, one) if still == "parameter" else (one, none)
    settings = rule.Settings()
    moved, _ = rule.step({"p": parameter}, {"p": slope}, rule.start({"p": parameter}, settings), 2.0, settings)
    np.testing.assert_allclose(moved["p"], parameter - 0.002 * slope, rtol=1e-6)


def newton_schulz(matrix: Vector) -> np.ndarray:
    """As Jordan et al. 2024 write it down, in float64."""
    high = matrix.shape[0] > matrix.shape[1]
    x = matrix.T.astype(np.float64) if high else matrix.astype(np.float64)
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if high else x


MATRICES = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32), st.floats(1e-6, 1e6))


@given(MATRICES)
def test_an_orthogonal_step_is_that_of_the_iteration_in_float64(case: tuple[int, int, int, float]) -> None:
    rows, columns, seed, scale = case
    matrix = (scale * np.random.default_rng(seed).standard_normal((rows, columns))).astype(np.float32)
    found = _newton_schulz.orthogonalize_matrix(matrix)
    np.testing.assert_allclose(found, newton_schulz(matrix), atol=1e-4)
    assert found.dtype == np.float32
    assert np.linalg.svd(found, compute_uv=False).max() < 1.21


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 2**32))
def test_newton_schulz_products_have_the_same_bits_in_any_order_of_addition(few: int, more: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    drawn_units = chance.standard_normal((few, few + more)) * (np.arange(few + more) % 3)
    units = np.rint(drawn_units * (2.0**24 / max(1.0, np.linalg.norm(drawn_units))))
    places = chance.permutation(few + more)
    ordered = np.ascontiguousarray(_newton_schulz.iterate_newton_schulz(units)[:, places])
    assert _newton_schulz.iterate_newton_schulz(np.ascontiguousarray(units[:, places])).tobytes() == ordered.tobytes()


def test_a_matrix_of_zeros_stays_and_one_that_is_not_finite_is_nan() -> None:
    zeros, broken = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    broken[1, 1] = np.inf
    assert not _newton_schulz.orthogonalize_matrix(zeros).any()
    assert np.isnan(_newton_schulz.orthogonalize_matrix(broken)).all()


@pytest.mark.parametrize("size", [1e-4, 1e-8, 1e-12, 1e-30, 5e-32, 1e-38, 1e-44])
def test_a_matrix_whose_gradients_stop_stops_as_torchs_does(size: float) -> None:
    """Momentum falls through every size that float32 has; at 5e-32 the unit became infinite, and the matrix NaN."""
    rule, chance = load_optimizer("muon"), np.random.default_rng(3)
    settings, found = rule.Settings(weight_decay=0.0), chance.standard_normal((6, 4)).astype(np.float32)
    momentum = (size * chance.standard_normal((6, 4))).astype(np.float32)
    oracle, still = torch.nn.Parameter(torch.from_numpy(found.copy())), np.zeros_like(found)
    theirs = torch.optim.Muon([oracle], lr=0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    oracle.grad = torch.from_numpy(still)
    theirs.state[oracle] = {"momentum_buffer": torch.from_numpy(momentum.copy())}
    theirs.step()
    moved, memory = rule.step(
        {"p": found}, {"p": still}, {"steps": np.array(3), "momentum/p": momentum}, 0.01, settings
    )
    np.testing.assert_allclose(moved["p"], oracle.detach().numpy(), atol=2e-3)
    assert np.isfinite(memory["momentum/p"]).all()
    assert (np.abs(moved["p"] - found).max() > 1e-4) == (size > 1e-9)


@pytest.mark.parametrize("name", ["lars", "lamb"])
@pytest.mark.parametrize("size", [1e-30, 1e-40, 1e-45])
def test_a_vanishing_gradient_moves_no_element_to_nan(name: str, size: float) -> None:
    rule = load_optimizer(name)
    settings, parameters = rule.Settings(weight_decay=0.0), {"p": np.full(4, 1e3, np.float32)}
    slope = {"p": np.array([size, 0.0, 0.0, -size], np.float32)}
    moved, memory = rule.step(parameters, slope, rule.start(parameters, settings), 1.0, settings)
    assert np.isfinite(moved["p"]).all()
    assert (moved["p"][1:3] == 1e3).all()
    assert all(np.isfinite(array).all() for array in memory.values())


OTHERS = {
    "adam": (torch.optim.Adam, [
        ({}, {}),
        ({"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.2},
         {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2})]),
    "adagrad": (torch.optim.Adagrad, [
        ({}, {}),
        ({"epsilon": 1e-3, "initial": 0.5, "weight_decay": 0.2},
         {"eps": 1e-3, "initial_accumulator_value": 0.5, "weight_decay": 0.2})]),
    "rmsprop": (torch.optim.RMSprop, [
        ({}, {}),
        ({"alpha": 0.9, "momentum": 0.7, "epsilon": 1e-3, "weight_decay": 0.2},
         {"alpha": 0.9, "momentum": 0.7, "eps": 1e-3, "weight_decay": 0.2})]),
    "adafactor": (torch.optim.Adafactor, [
        ({}, {}),
        ({"power": 0.6, "epsilon": 0.5, "least": 0.9, "longest": 1.5, "weight_decay": 0.2},
         {"beta2_decay": -0.6, "eps": (0.5, 0.9), "d": 1.5, "weight_decay": 0.2})]),
}  # fmt: skip
"""torch's optimizer, and settings of ours with those of torch's that mean the same."""


@pytest.mark.parametrize(("name", "case"), [(name, case) for name in OTHERS for case in (0, 1)])
def test_an_optimizer_is_torchs_of_its_name(name: str, case: int) -> None:
    kind, cases = OTHERS[name]
    settings, torchs = cases[case]
    assert_close(ours(name, settings, RATES), theirs(kind, torchs, RATES))


def test_lion_is_algorithm_2_in_float64() -> None:
    """Of Chen et al. 2023, written down a second time; torch has none."""
    found = ours("lion", {"beta1": 0.85, "beta2": 0.97, "weight_decay": 0.1}, RATES)
    expected = {name: values.astype(np.float64) for name, values in drawn(0).items()}
    momentum = dict.fromkeys(SHAPES, 0.0)
    for step, lr in enumerate(RATES, 1):
        for name, slope in drawn(step).items():
            update = 0.85 * momentum[name] + 0.15 * slope.astype(np.float64)
            expected[name] = expected[name] - lr * (np.sign(update) + 0.1 * expected[name])
            momentum[name] = 0.97 * momentum[name] + 0.03 * slope
    assert_close(found, {name: np.asarray(values, np.float32) for name, values in expected.items()})


def test_adam_without_a_decay_is_adamw_without_one_to_the_bit() -> None:
    plain, decoupled = ours("adam", {}, RATES), ours("adamw", {"weight_decay": 0.0}, RATES)
    assert all(plain[name].tobytes() == decoupled[name].tobytes() for name in SHAPES)


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e3])
def test_adafactor_is_torchs_for_gradients_of_any_size_and_stacks_of_matrices(scale: float) -> None:
    rule, chance = load_optimizer("adafactor"), np.random.default_rng(0)
    settings, values = rule.Settings(), chance.standard_normal((4, 2, 3, 5)).astype(np.float32)
    parameter, moved = torch.nn.Parameter(torch.from_numpy(values.copy())), {"p": values}
    oracle, memory = torch.optim.Adafactor([parameter], lr=0.1), rule.start(moved, settings)
    for _ in range(20):
        slope = (scale * chance.standard_normal(values.shape)).astype(np.float32)
        parameter.grad = torch.from_numpy(slope)
        oracle.step()
        moved, memory = rule.step(moved, {"p": slope}, memory, 0.1, settings)
    np.testing.assert_allclose(moved["p"], parameter.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_a_square_beyond_float32_leaves_adafactors_memory_finite() -> None:
    rule, parameters = load_optimizer("adafactor"), {"p": np.ones((2, 2), np.float32)}
    settings, memory = rule.Settings(), rule.start(parameters, rule.Settings())
    for size in (1e30, 1.0):
        slope = {"p": np.full((2, 2), size, np.float32)}
        parameters, memory = rule.step(parameters, slope, memory, 0.1, settings)
    assert np.isfinite(parameters["p"]).all()
    assert np.isfinite(memory["squares/p"]).all()


@pytest.mark.parametrize("name", ["adam", "adafactor", "adagrad", "rmsprop", "lion", "adamw", "sgd", "nesterov"])
def test_an_element_whose_gradient_is_0_throughout_stays(name: str) -> None:
    rule = load_optimizer(name)
    settings, parameters = rule.Settings(weight_decay=0.0), {"p": np.array([0.5, 0.25], np.float32)}
    memory = rule.start(parameters, settings)
    for _ in range(5):
        parameters, memory = rule.step(parameters, {"p": np.array([1, 0], np.float32)}, memory, 0.1, settings)
    assert parameters["p"][1] == 0.25
    assert parameters["p"][0] < 0.5


def test_muon_is_torchs_within_torchs_bfloat16() -> None:
    settings, named = {"weight_decay": 0.1}, "layer.weight"
    parameter = torch.nn.Parameter(torch.from_numpy(drawn(0)[named].copy()))
    rule = torch.optim.Muon([parameter], lr=RATES[0], adjust_lr_fn="match_rms_adamw", **settings)
    for step, lr in enumerate(RATES):
        rule.param_groups[0]["lr"] = lr
        parameter.grad = torch.from_numpy(drawn(step + 1)[named])
        rule.step()
    np.testing.assert_allclose(ours("muon", settings, RATES)[named], parameter.detach().numpy(), atol=5e-3)


def test_muon_moves_all_but_matrices_as_adamw_does() -> None:
    assert_same = np.testing.assert_array_equal
    found, plain = ours("muon", {}, RATES), ours("adamw", {}, RATES)
    assert_same(found["layer.bias"], plain["layer.bias"])
    assert_same(found["scale"], plain["scale"])
    assert not np.allclose(found["layer.weight"], plain["layer.weight"], atol=1e-3)
    named = ours("muon", {"adamw": ["layer.*"]}, RATES)
    assert_same(named["layer.weight"], plain["layer.weight"])


def test_muon_takes_a_kernel_for_the_matrix_of_its_outputs() -> None:
    rule = load_optimizer("muon")
    settings, chance = rule.Settings(), np.random.default_rng(0)
    kernel, slope = (chance.standard_normal((4, 2, 3, 3)).astype(np.float32) for _ in range(2))
    moved = {
        shape: rule.step({"p": p}, {"p": g}, rule.start({"p": p}, settings), 0.1, settings)[0]["p"].reshape(-1)
        for shape in ((4, 2, 3, 3), (4, 18))
        for p, g in [(kernel.reshape(shape), slope.reshape(shape))]
    }
    np.testing.assert_array_equal(*moved.values())


@pytest.mark.parametrize(("settings", "torchs"), ADAMW_CASES, ids=["defaults", "all set"])
def test_adamw_is_torchs(settings: dict[str, object], torchs: dict[str, object]) -> None:
    assert_close(ours("adamw", settings, RATES), theirs(torch.optim.AdamW, torchs, RATES))


def test_adamw_to_the_bit_in_scalars() -> None:
    """One element followed in numpy scalars, which no vector unit touches: the arrays give the same bits."""
    f32, settings = np.float32, ADAMW.Settings()
    parameter, first, second = f32(0.7), f32(0), f32(0)
    arrays = {"p": np.full(3, 0.7, f32)}
    memory = ADAMW.start(arrays, settings)
    for step, slope in enumerate(map(f32, (0.3, -1.7, 2e-5)), 1):
        arrays, memory = ADAMW.step(arrays, {"p": np.full(3, slope, f32)}, memory, 0.05, settings)
        first = first + (slope - first) * f32(1 - 0.9)
        second = second * f32(0.999) + slope * slope * f32(1 - 0.999)
        spread = f32(math.sqrt(1 - math.prod([0.999] * step)))
        change = first / (np.sqrt(second) / spread + f32(1e-8)) * f32(0.05 / (1 - math.prod([0.9] * step)))
        parameter = parameter * f32(1 - 0.05 * 0.01) - change
        assert arrays["p"].tobytes() == np.full(3, parameter).tobytes()


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_first_matching_group_sets_the_decay(name: str) -> None:
    rule = load_optimizer(name)
    groups = [{"pattern": "*.bias", "weight_decay": 0.0}, {"pattern": "layer.*", "weight_decay": 0.5}]
    settings = rule.Settings(weight_decay=0.25, groups=groups)
    assert [settings.choose_weight_decay(parameter) for parameter in SHAPES] == [0.5, 0.0, 0.25]
    start = drawn(0)
    still = {parameter: np.zeros_like(values) for parameter, values in start.items()}
    moved, _ = rule.step(start, still, rule.start(start, settings), 0.5, settings)
    for parameter, share in zip(SHAPES, (0.75, 1.0, 0.875), strict=True):
        np.testing.assert_array_equal(moved[parameter], start[parameter] * np.float32(share))


def test_patterns_mind_the_case() -> None:
    settings = SGD.Settings(groups=[{"pattern": "*.BIAS", "weight_decay": 0.5}])
    assert settings.choose_weight_decay("layer.bias") == 0.0
    assert settings.choose_weight_decay("layer.BIAS") == 0.5


REFUSED = [
    ("sgd", {"momentum": 1.0}),
    ("nesterov", {"momentum": 0.0}),
    ("lamb", {"epsilon": 0.0}),
    ("sgd", {"betas": [0.9, 0.99]}),
    ("sgd", {"weight_decay": -0.1}),
    ("sgd", {"momentum": math.nan}),
    ("sgd", {"groups": [{"pattern": "*"}]}),
    ("sgd", {"groups": [{"pattern": "*", "weight_decay": 0.1, "lr": 1.0}]}),
    ("adamw", {"beta1": 1.0}),
    ("adamw", {"beta2": -0.1}),
    ("adamw", {"epsilon": 0.0}),
    ("adamw", {"momentum": 0.9}),
    ("lars", {"trust": 0.0}),
    ("lars", {"momentum": 1.0}),
    ("muon", {"momentum": 1.0}),
    ("lion", {"epsilon": 1e-8}),
    ("lion", {"beta2": 1.0}),
    ("adafactor", {"longest": 0.5}),
    ("adagrad", {"initial": -1.0}),
    ("rmsprop", {"alpha": 1.0}),
    ("muon", {"adamw": "layer.*"}),
]


@pytest.mark.parametrize(("name", "settings"), REFUSED, ids=str)
def test_other_settings_are_refused(name: str, settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        load_optimizer(name).Settings(**settings)


def test_adamw_refuses_a_memory_without_its_count() -> None:
    parameters, settings = drawn(0), ADAMW.Settings()
    memory = ADAMW.start(parameters, settings)
    for steps in (None, np.zeros(1, np.int64), np.zeros((), np.float32)):
        broken = {**memory, "steps": steps} if steps is not None else {k: v for k, v in memory.items() if k != "steps"}
        with pytest.raises(PayloadRefused, match="steps"):
            ADAMW.step(parameters, drawn(1), broken, 0.1, settings)


def test_a_tensor_longer_than_a_chunk_moves_as_its_pieces_do() -> None:
    generator = np.random.default_rng(1)
    whole, slope = (generator.standard_normal(2 * CHUNK + 5).astype(np.float32) for _ in range(2))
    settings = ADAMW.Settings()

    def moved(parameter: Vector, gradient: Vector) -> Vector:
        return ADAMW.step({"p": parameter}, {"p": gradient}, ADAMW.start({"p": parameter}, settings), 0.1, settings)[0][
            "p"
        ]

    pieces = [moved(whole[cut], slope[cut]) for cut in (slice(0, 7), slice(7, CHUNK + 100), slice(CHUNK + 100, None))]
    assert moved(whole, slope).tobytes() == np.concatenate(pieces).tobytes()


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.floats(1e-2, 1e4))
def test_a_clipped_gradient_has_the_limits_length_or_its_own(seed: int, limit: float, scale: float) -> None:
    gradient = drawn(seed, scale)
    length = compute_norm(values.reshape(-1) for values in gradient.values())
    clipped = clip_gradient(gradient, limit)
    found = compute_norm(values.reshape(-1) for values in clipped.values())
    if length <= limit:
        assert all(clipped[name] is gradient[name] for name in gradient)
    else:
        assert found == pytest.approx(limit, rel=1e-6)
        assert all(values.dtype == np.float32 and values.shape == SHAPES[name] for name, values in clipped.items())


def test_a_gradient_of_just_the_limit_is_left_alone() -> None:
    gradient = drawn(4)
    limit = compute_norm(values.reshape(-1) for values in gradient.values())
    assert all(values is gradient[name] for name, values in clip_gradient(gradient, limit).items())


def test_a_clip_keeps_the_direction() -> None:
    gradient = drawn(4)
    clipped = clip_gradient(gradient, 0.5)
    ratios = np.concatenate([(clipped[name] / gradient[name]).reshape(-1) for name in gradient])
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)
