"""Reproducible arithmetic: equal bits on every machine, near the exact values, and a refusal for all else."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphdoc.document.schema import REPRODUCIBLE, parse_document, set_arithmetic
from graphdoc.errors import DocumentRefused
from graphdoc.figures import Published
from graphdoc.reproducible.digits import evaluate_decimal
from graphdoc.reproducible.exact import (
    DEPTH,
    compute_shift,
    count_factor_bits,
    find_power,
    multiply_exactly,
    round_factor,
    sum_exactly,
)
from graphdoc.reproducible.functions import NEAR, choose_nearest, compute_function
from graphdoc.reproducible.mode import compute_reproducibly
from graphdoc.runner import DocumentRunner
from tests.graphdoc.conftest import Arrays
from tests.graphdoc.reproducible_steps import compute_all
from tests.lanes import FULL, leave_to_full
from tests.patience import PATIENCE_S


def steps_at(width: str, threads: Sequence[int]) -> dict[str, list[str]]:
    """Returns the output of reproducible_steps at this vector width, by the number of threads."""
    if width == "widest" and list(threads) == [torch.get_num_threads()]:
        return compute_all(threads)  # as this process has it
    library = {"default": "COMPATIBLE", "avx2": "AVX2", "widest": "AUTO"}[width]
    own = {"MKL_CBWR": library} | ({} if width == "widest" else {"ATEN_CPU_CAPABILITY": width})
    command = [sys.executable, "-m", "tests.graphdoc.reproducible_steps", *map(str, threads)]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, timeout=PATIENCE_S, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("width", "threads"), leave_to_full([("widest", (1,)), ("widest", (1, 4)), ("avx2", (1, 2, 4))])
)
def test_steps_have_equal_bits_at_every_vector_width_and_number_of_threads(width: str, threads: Sequence[int]) -> None:
    at_width = [steps_at("default", threads), steps_at(width, threads)]
    for model in ("mlp", "cnn", "gpt"):
        found = [steps[f"{model}/{number}"] for steps in at_width for number in threads]
        assert len({reproducible for reproducible, _ in found}) == 1, model
        assert len({native for _, native in found}) > 1, f"{model} differs natively, or this test shows nothing"


@pytest.mark.parametrize("name", sorted(set(NEAR) - {"pow"}))
def test_a_function_is_rounded_correctly(name: str) -> None:
    """The oracle is the function to 100 digits, rounded by exact rational arithmetic."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, generator=generator) * torch.tensor([0.01, 1.0, 8.0]).repeat(20)
    if name.startswith(("log", "sqrt")):
        x = x.abs()
    for argument, found in zip(x.tolist(), compute_function(name, x).tolist(), strict=True):
        exact = Fraction(evaluate_decimal(name, argument))
        apart = abs(Fraction(found) - exact)
        for beside in (np.nextafter(np.float32(found), np.float32(side)) for side in (-math.inf, math.inf)):
            assert apart <= abs(Fraction(float(beside)) - exact) or abs(exact) < Fraction(2) ** -126


@pytest.mark.parametrize("name", sorted(NEAR))
def test_the_digits_are_those_of_another_library(name: str) -> None:
    arguments = (1.75, 2.5) if name == "pow" else (0.625,)
    near = getattr(math, name, None) or (lambda x: 1 / (1 + math.exp(-x)))
    assert float(evaluate_decimal(name, *arguments)) == pytest.approx(near(*arguments), rel=1e-15)


@pytest.mark.parametrize("base", [-31, 31])
def test_a_whole_power_is_exact_with_its_sign(base: int) -> None:
    """It lies half way between two float32, so that noise behind its digits would round it."""
    assert evaluate_decimal("pow", float(base), 5.0) == base**5


def test_an_argument_that_float64_leaves_open_is_decided_by_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error bound so wide that every second element is open, the results stay the same."""
    x = torch.linspace(-3, 3, 200)
    expected = compute_function("exp", x)
    monkeypatch.setattr("graphdoc.reproducible.functions.ERROR", 2.0**-25)
    assert torch.equal(compute_function("exp", x), expected)
    assert choose_nearest("exp2", [0.5], 1.25, 1.75) == 1.25


def test_functions_keep_what_is_not_finite() -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, 200.0, -200.0])
    expected = torch.tensor([math.inf, 0.0, math.nan, 1.0, math.inf, 0.0])
    torch.testing.assert_close(compute_function("exp", x), expected, rtol=0, atol=0, equal_nan=True)


def round_to_grid(tensor: Tensor, dims: Sequence[int], bits: int) -> Tensor:
    """Returns multiples of one step: 2**-bits of the power of two above the largest magnitude along `dims`.

    Rounds to the nearest, ties to even (Rump, Ogita, Oishi 2008, SIAM J. Sci. Comput. 31, ExtractScalar).
    """
    shift = compute_shift(find_power(tensor, dims), bits)
    return (tensor + shift).sub_(shift)


@pytest.mark.parametrize("depth", [1, 512, 513, DEPTH])
def test_a_product_is_exact_over_rounded_factors_in_any_order(depth: int) -> None:
    """The oracle multiplies and adds Python's fractions."""
    generator = torch.Generator().manual_seed(2)
    left = torch.randn(3, depth, generator=generator) * torch.logspace(-6, 3, depth)
    right = torch.randn(depth, 2, generator=generator)
    order = torch.randperm(depth, generator=generator)
    found = multiply_exactly(left, right)
    assert torch.equal(found, multiply_exactly(left[:, order], right[order]))
    own, other = count_factor_bits(depth)
    rows, columns = round_to_grid(left, (-1,), own), round_to_grid(right, (-2,), other)
    for row in range(3):
        for column in range(2):
            factors = zip(rows[row].tolist(), columns[:, column].tolist(), strict=True)
            assert Fraction(float(found[row, column])) == sum(Fraction(a) * Fraction(b) for a, b in factors)


def test_the_largest_sum_of_products_is_exact() -> None:
    """Every factor has all of its bits, and all signs are one: the sum has 53."""
    for depth in (2**9, 2**10, DEPTH):
        own, other = count_factor_bits(depth)
        left, right = (torch.full((1, depth), 2.0 - 2.0 ** (1 - bits)) for bits in (own, other))
        exact = depth * Fraction(float(left[0, 0])) * Fraction(float(right[0, 0]))
        assert Fraction(float(multiply_exactly(left, right.mT))) == exact


@pytest.mark.parametrize("dim", [-1, -2])
def test_a_factor_rounded_by_blocks_is_as_one_rounded_at_once(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(7)
    factor = torch.randn(37, 50, generator=generator) * torch.logspace(-3, 3, 50)
    monkeypatch.setattr("graphdoc.reproducible.exact.BLOCK", 100)
    for given in (factor, factor.T.contiguous().T, factor[::2], factor.repeat(2, 1, 1)):
        assert torch.equal(round_factor(given, dim, 21), round_to_grid(given, (dim,), 21).double())


def test_a_sum_is_exact_in_any_order() -> None:
    generator = torch.Generator().manual_seed(3)
    terms = torch.randn(4097, generator=generator) * torch.logspace(-2, 2, 4097)
    found = sum_exactly(terms)
    assert torch.equal(found, sum_exactly(terms[torch.randperm(4097, generator=generator)]))
    exact = sum(map(Fraction, terms.tolist()))
    assert abs(Fraction(float(found)) - exact) <= 4097 * Fraction(2) ** -38 * Fraction(float(terms.abs().max()))


def _targets(rows: int, classes: int) -> Tensor:
    return (torch.arange(rows) * 7) % classes


CALLS: dict[str, tuple[Callable[..., Tensor], Sequence[tuple[int, ...]]]] = {
    "linear": (functional.linear, [(6, 9), (5, 9), (5,)]),
    "bmm": (torch.bmm, [(3, 4, 5), (3, 5, 2)]),
    "a product with a vector": (torch.mv, [(4, 5), (5,)]),
    "baddbmm": (lambda a, b, c: torch.baddbmm(a, b, c, beta=0.5, alpha=2.0), [(3, 4, 2), (3, 4, 5), (3, 5, 2)]),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), [(2, 3, 4), (2, 5, 4)]),
    "conv1d": (lambda x, w: functional.conv1d(x, w, None, 2, 1, 2), [(2, 3, 11), (4, 3, 3)]),
    "conv2d": (lambda x, w, b: functional.conv2d(x, w, b, 2, 1), [(2, 3, 7, 6), (4, 3, 3, 3), (4,)]),
    "grouped conv2d": (lambda x, w: functional.conv2d(x, w, None, 1, (1, 0), 1, 2), [(2, 4, 5, 6), (6, 2, 3, 2)]),
    "conv3d": (functional.conv3d, [(1, 2, 4, 4, 4), (3, 2, 2, 2, 2)]),
    "max_pool2d": (lambda x: functional.max_pool2d(x, 3, 2, 1), [(2, 3, 7, 7)]),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 3, 2), [(2, 3, 7, 7)]),
    "a global mean": (lambda x: functional.adaptive_avg_pool2d(x, 1), [(2, 3, 5, 5)]),
    "attention": (lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 2, 5, 4)] * 3),
    "softmax": (lambda x: x.softmax(-1), [(4, 7)]),
    "log_softmax": (lambda x: x.log_softmax(0), [(4, 7)]),
    "logsumexp": (lambda x: x.logsumexp((0, 1)), [(4, 7)]),
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, (5, 4), w, b), [(3, 5, 4), (5, 4), (5, 4)]),
    "rms_norm": (lambda x, w: functional.rms_norm(x, (4,), w), [(3, 5, 4), (4,)]),
    "group_norm": (lambda x, w, b: functional.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)]),
    "instance_norm": (functional.instance_norm, [(3, 4, 5)]),
    "batch_norm": (lambda x, w, b: functional.batch_norm(x, None, None, w, b, True), [(6, 4, 3), (4,), (4,)]),
    "embedding": (lambda w: functional.embedding(torch.tensor([[1, 2, 1], [1, 0, 4]]), w, padding_idx=0), [(5, 3)]),
    "cross_entropy": (lambda x: functional.cross_entropy(x, _targets(6, 5), label_smoothing=0.1), [(6, 5)]),
    "cross entropy of places": (
        lambda x: functional.cross_entropy(x, _targets(6, 5).view(2, 3), ignore_index=2, reduction="sum"),
        [(2, 5, 3)],
    ),
    "weighted cross entropy": (
        lambda x: functional.cross_entropy(x, _targets(6, 3), torch.tensor([1.0, 2.0, 3.0]).to(x)),
        [(6, 3)],
    ),
    "mse_loss": (functional.mse_loss, [(4, 3), (4, 3)]),
    "logit loss": (lambda x: functional.binary_cross_entropy_with_logits(x, (_targets(6, 2) > 0).to(x)), [(6,)]),
    "gelu": (functional.gelu, [(40,)]),
    "gelu by tanh": (lambda x: functional.gelu(x, approximate="tanh"), [(40,)]),
    "silu": (functional.silu, [(40,)]),
    "elu": (functional.elu, [(40,)]),
    "softplus": (functional.softplus, [(40,)]),
    "logsigmoid": (functional.logsigmoid, [(40,)]),
    "leaky_relu": (functional.leaky_relu, [(40,)]),
    "hardtanh": (functional.hardtanh, [(40,)]),
    "tanh and sigmoid": (lambda x: x.tanh() * x.sigmoid(), [(40,)]),
    "sine and cosine": (lambda x: x.sin() * x.cos().exp(), [(40,)]),
    "powers": (lambda x: (x * x + 1) ** 1.7 + x**2 + (x * x + 1) ** -0.5 + 2.0**x, [(40,)]),
    "logarithms": (lambda x: (x * x + 1).log() + (x * x).log1p() + (x * x + 1).rsqrt(), [(40,)]),
    "error functions": (lambda x: x.erf() + x.erfc() + x.expm1(), [(40,)]),
    "var, mean and norm": (lambda x: x.var(1) + x.mean(1) + x.std(1) + x.norm(dim=1), [(4, 9)]),
    "most and least": (lambda x: x.amax(1) - x.amin(1) + x.clamp(-0.5, 0.5).sum(1), [(4, 9)]),
    "elementwise": (
        lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, x, y * y + 1) + torch.lerp(x, y, 0.3),
        [(9,), (9,)],
    ),
    "scaled sums": (
        lambda x, y: torch.add(x, y, alpha=0.3) - torch.sub(x, y, alpha=0.7) + torch.rsub(x, y),
        [(9,), (9,)],
    ),
    "gather and index_add": (
        lambda x: (
            x.gather(0, torch.tensor([[1, 0], [1, 1]]))
            + x[torch.tensor([2, 2])]
            + x.index_select(0, torch.tensor([0, 0]))
        ),
        [(3, 2)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_is_near_torch_in_float64_forward_and_backward(name: str) -> None:
    call, shapes = CALLS[name]
    generator = torch.Generator().manual_seed(4)
    given = [torch.randn(shape, generator=generator) for shape in shapes]

    def compute(inputs: list[Tensor]) -> tuple[Tensor, ...]:
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        result = call(*leaves)
        weights = torch.linspace(-1.0, 2.0, result.numel()).view(result.shape).to(result.dtype)
        return result.detach(), *torch.autograd.grad((result * weights).sum(), leaves)

    with compute_reproducibly():
        found = compute(given)
    for own, exact in zip(found, compute([tensor.double() for tensor in given]), strict=True):
        assert own.dtype == torch.float32
        assert own.shape == exact.shape
        assert (own - exact).abs().max() <= 3e-6 * exact.abs().max().clamp(min=1.0)


def test_an_operator_without_a_kernel_is_refused_by_its_name() -> None:
    with pytest.raises(DocumentRefused, match="cumsum has no reproducible kernel"), compute_reproducibly():
        torch.ones(3).cumsum(0)
    with pytest.raises(DocumentRefused, match="16-bit floats"), compute_reproducibly():
        torch.ones(3).to(torch.bfloat16)
    rows = torch.ones(3, 2, requires_grad=True)
    with pytest.raises(DocumentRefused, match="scaled by frequency has no"), compute_reproducibly():
        functional.embedding(torch.tensor([1, 1]), rows, scale_grad_by_freq=True).sum().backward()


def test_the_mode_inside_itself_changes_nothing() -> None:
    x = torch.randn(4, 600, generator=torch.Generator().manual_seed(6))
    with compute_reproducibly():
        once = x @ x.T
        with compute_reproducibly():
            assert torch.equal(x @ x.T, once)


def test_a_document_states_its_arithmetic(mlp: Published) -> None:
    own = set_arithmetic(mlp.document, "reproducible")
    document = parse_document(own)
    assert document.arithmetic == "reproducible"
    assert json.loads(own)["format"] == REPRODUCIBLE
    assert parse_document(mlp.document).arithmetic == "native"
    assert set_arithmetic(own, "native") == mlp.document
    assert set_arithmetic(own, "reproducible") == own
    with pytest.raises(DocumentRefused, match="arithmetic of gradgraph/4 is reproducible"):
        parse_document(own.replace(b'"arithmetic":"reproducible"', b'"arithmetic":"exactly"'))


@FULL
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_child_computes_a_document_within_its_bound(
    kind: str, request: pytest.FixtureRequest, runner: DocumentRunner, digits: Arrays
) -> None:
    made = request.getfixturevalue(kind)
    batch = digits if kind == "mlp" else digits | {"x": digits["x"].reshape(-1, 1, 8, 8)}
    answers = []
    for arithmetic in ("native", "reproducible"):
        runner.load(set_arithmetic(made.document, arithmetic))
        assert runner.bound(64).only_on_cpu.startswith("arithmetic") == (arithmetic == "reproducible")
        answers.append(runner.run(made.parameters, batch, pass_rows=64))
    native, own = answers
    for name, array in native.items():
        assert np.abs(own[name] - array).max() <= 1e-5 * max(1.0, float(np.abs(array).max())), name
    assert any(not np.array_equal(own[name], native[name]) for name in native)


def test_a_document_with_an_operator_that_has_no_kernel_is_refused_when_it_is_bounded(
    half: Published, runner: DocumentRunner
) -> None:
    runner.load(set_arithmetic(half.document, "reproducible"))
    with pytest.raises(DocumentRefused, match="16-bit floats have no reproducible kernel"):
        runner.bound(8)


def test_a_call_of_no_floats_is_torchs_own() -> None:
    with compute_reproducibly():
        found: Any = torch.arange(5).cumsum(0)
    assert found.tolist() == [0, 1, 3, 6, 10]
