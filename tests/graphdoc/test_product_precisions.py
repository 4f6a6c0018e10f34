"""Products in TF32 and in 16-bit floats, on a processor."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from graphdoc.document.bound import compute_bound
from graphdoc.document.equality import check_equal
from graphdoc.document.interpret import Program
from graphdoc.document.product_precisions import OPERANDS, compute_in_tf32, multiply_whole, round_to_tf32
from graphdoc.document.publish import Objective, compute_classification_loss, document_of, publish_module
from graphdoc.document.schema import ROUNDED, parse_document, set_arithmetic
from graphdoc.errors import DocumentRefused
from graphdoc.figures import Published
from graphdoc.passes import build_tensors, mean_gradient, numpy_of

Arrays = dict[str, np.ndarray]


def round_with_numpy(values: np.ndarray) -> np.ndarray:
    """The nearest number of 11 significant bits, by a quotient and numpy's own rounding to even in float64."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    rounded: np.ndarray = np.ldexp(np.rint(mantissa * 2**11), exponent - 11).astype(np.float32)
    return rounded


def test_rounding_is_to_the_nearest_and_to_even() -> None:
    drawn = np.random.default_rng(1).normal(size=20_000) * 10.0 ** np.random.default_rng(2).integers(-20, 20, 20_000)
    ties = (np.arange(2048, 4096)[:, None] + np.array([0.0, 0.5])).reshape(-1)
    for values in (drawn.astype(np.float32), ties.astype(np.float32), -ties.astype(np.float32)):
        assert np.array_equal(round_to_tf32(torch.from_numpy(values)).numpy(), round_with_numpy(values))
    odd = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    assert round_to_tf32(odd).view(torch.int32).tolist() == odd.view(torch.int32).tolist()


@pytest.mark.parametrize("transposed", [False, True])
def test_products_forward_and_backward_are_of_rounded_operands(transposed: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    left = torch.randn(33, 65, generator=draw).requires_grad_()
    right = (
        torch.randn(17, 65, generator=draw).T if transposed else torch.randn(65, 17, generator=draw)
    ).requires_grad_()
    slope = torch.randn(33, 17, generator=draw)
    with compute_in_tf32("cpu"), compute_in_tf32("cpu"):
        product = left @ right
        found = torch.autograd.grad(product, (left, right), slope)
    rounded = [round_to_tf32(one.detach()) for one in (left, right, slope)]
    wanted = rounded[0] @ rounded[1], rounded[2] @ rounded[1].T, rounded[0].T @ rounded[2]
    for one, other in zip((product, *found), wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(product, left @ right, rtol=1e-6, atol=1e-6)


def make_cnn() -> tuple[Published, Arrays]:
    torch.manual_seed(4)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    x, y = torch.randn(8, 1, 8, 8), torch.arange(8) % 10
    made = publish_module(module, compute_classification_loss, (x, y), precision="tf32")
    return made, {"x": x.numpy(), "y": y.numpy()}


def test_a_document_in_tf32_states_it_and_is_near_fp32() -> None:
    made, batch = make_cnn()
    document = parse_document(made.document)
    assert (json.loads(made.document)["format"], document.precision) == (ROUNDED, "tf32")
    answers = []
    for data in (made.document, set_arithmetic(made.document, "native")):
        inputs = build_tensors(made.parameters, "cpu")
        answers.append(
            numpy_of(mean_gradient(Program(parse_document(data)), inputs, batch, bytes(32), (8, 3), "cpu")[0])
        )
    for name, array in answers[1].items():
        assert np.abs(answers[0][name] - array).max() <= 5e-3 * np.abs(array).max(), name
    assert any(not np.array_equal(answers[0][name], array) for name, array in answers[1].items())
    with pytest.raises(DocumentRefused, match="arithmetic of gradgraph/5 is tf32"):
        parse_document(made.document.replace(b'"arithmetic":"tf32"', b'"arithmetic":"reproducible"'))


def test_the_bound_of_tf32_has_its_rounded_operands() -> None:
    made, _ = make_cnn()
    rounded = compute_bound(Program(parse_document(made.document)), 8)
    plain = compute_bound(Program(parse_document(set_arithmetic(made.document, "native"))), 8)
    assert rounded.peak_bytes > plain.peak_bytes
    assert (rounded.operations, rounded.only_on_cpu) == (plain.operations, plain.only_on_cpu)


class _HalfProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every product of 16-bit tensors that have elements."""

    seen = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.seen += func in OPERANDS and any(
            isinstance(one, Tensor) and one.dtype == torch.bfloat16 and not one.is_meta for one in args
        )
        return func(*args, **(kwargs or {}))


def make_half(module: nn.Module) -> tuple[Objective, dict[str, Tensor], bytes, dict[str, Tensor]]:
    objective = Objective(module, compute_classification_loss, precision="bf16")
    data = {"x": torch.randn(4, 16), "y": torch.arange(4)}
    return objective, data, *document_of(objective, data, {}, training=True)


def test_a_bf16_document_is_compared_without_16_bit_kernels() -> None:
    objective, data, document, state = make_half(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)))
    assert parse_document(document).precision == "bf16"
    with _HalfProducts() as products:  # type: ignore[no-untyped-call]
        check_equal(objective, document, state, data, "model.", training=True)
    assert products.seen == 0
    with _HalfProducts() as products:  # type: ignore[no-untyped-call]
        objective(data)
    assert products.seen == 2


def test_another_bf16_document_is_distinguished_from_the_module() -> None:
    objective, data, document, state = make_half(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)))
    other = document.replace(b'"none"', b'"tanh"')
    assert other != document
    with pytest.raises(DocumentRefused, match="loss is not what the module computes"):
        check_equal(objective, other, state, data, "model.", training=True)


def test_whole_products_are_rounded_once() -> None:
    draw = torch.Generator().manual_seed(5)
    left, right = (torch.randn(24, 24, generator=draw).bfloat16() for _ in range(2))
    with multiply_whole("bf16"):
        assert torch.equal(left @ right, (left.float() @ right.float()).bfloat16())
    images, weights = torch.randn(2, 3, 6, 6).bfloat16(), torch.randn(4, 3, 3, 3).bfloat16()
    with multiply_whole("bf16"):
        found = torch.nn.functional.conv2d(images, weights)
    assert torch.equal(found, torch.nn.functional.conv2d(images.float(), weights.float()).bfloat16())
