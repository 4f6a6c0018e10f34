"""The allow-list agrees with torch, and holds nothing that writes, draws or leaves memory as it was."""

from typing import Any

import pytest
import torch

from graphdoc.document.arguments import DTYPES, INPUT_DTYPES, MEMORY_FORMATS
from graphdoc.document.calls import OPERATORS, TORCH_MEMORY_FORMATS, TORCH_TYPES
from graphdoc.document.checks import RULES, check_indices
from graphdoc.document.kernels import KERNELS
from graphdoc.errors import DocumentRefused
from graphdoc.operators import ALLOWED, FAMILIES, costs

ATEN = [key for key, entry in ALLOWED.items() if not entry.own]
OURS = {
    "Tensor": {"tensor", "operand"},
    "Optional[Tensor]": {"tensor?", "none"},
    "List[Tensor]": {"tensors"},
    "List[Optional[Tensor]]": {"places"},
    "int": {"int", "dtype", "memory"},
    "Optional[int]": {"int?", "dtype?", "memory?", "memory", "none"},
    "List[int]": {"ints"},
    "Optional[List[int]]": {"ints?"},
    "Optional[List[float]]": {"floats?"},
    "float": {"float", "zero"},
    "Optional[float]": {"number?"},
    "number": {"number"},
    "Optional[number]": {"number?"},
    "bool": {"bool", "true", "false"},
    "Optional[bool]": {"none", "bool?"},
    "Optional[Device]": {"none"},
}
FORBIDDEN = {"empty", "as_strided", "bernoulli", "rand", "item", "nonzero", "dropout"}


def schema_of(name: str) -> torch.FunctionSchema:
    packet, overload = name.split(".")
    schema: torch.FunctionSchema = getattr(getattr(torch.ops.aten, packet), overload)._schema
    return schema


@pytest.mark.parametrize("name", ATEN)
def test_the_signature_is_torch_s(name: str) -> None:
    schema, signature = schema_of(name), ALLOWED[name]
    assert len(schema.arguments) == len(signature.arguments)
    for argument, kind in zip(schema.arguments, signature.arguments, strict=True):
        words = str(argument.type) in ("str", "Optional[str]") and ("|" in kind or kind == "equation")
        assert words or kind in OURS[str(argument.type)], argument.name
    results = ["tensors" if "List" in str(entry.type) else "tensor" for entry in schema.returns]
    assert list(signature.results) == results


@pytest.mark.parametrize("name", ATEN)
def test_nothing_writes_in_place_or_draws(name: str) -> None:
    schema = schema_of(name)
    assert not schema.is_mutable
    assert not any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    packet, overload = name.split(".")
    draws = torch.Tag.nondeterministic_seeded in getattr(getattr(torch.ops.aten, packet), overload).tags
    assert not draws or "zero" in ALLOWED[name].arguments
    assert packet not in FORBIDDEN


def test_every_key_can_be_called_and_stands_in_one_family() -> None:
    assert set(OPERATORS) == set(ALLOWED)
    assert sum(len(family) for family in FAMILIES.values()) == len(ALLOWED)
    assert set(KERNELS) == set(ALLOWED) - set(ATEN)
    assert set(RULES) <= set(ATEN)
    assert set(TORCH_TYPES) == set(DTYPES) >= set(INPUT_DTYPES)
    assert set(TORCH_MEMORY_FORMATS) == set(MEMORY_FORMATS)
    for name, size in DTYPES.items():
        assert torch.empty(0, dtype=TORCH_TYPES[name]).element_size() == size


def test_batch_norm_leaves_the_running_statistics_that_it_is_given() -> None:
    mean, variance = torch.zeros(3), torch.ones(3)
    call = OPERATORS["batch_norm.training"].call
    _, new_mean, new_variance = call(torch.randn(8, 3) + 5, None, None, mean, variance, 0.1, 1e-5)
    assert mean.tolist() == [0, 0, 0]
    assert variance.tolist() == [1, 1, 1]
    assert new_mean.min() > 0.3
    assert not torch.equal(new_variance, variance)


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def test_costs_by_hand() -> None:
    x, weight, convolved = meta(2, 3, 10, 10), meta(4, 3, 3, 3), meta(2, 4, 8, 8)
    assert costs.count_convolution([x, weight], [convolved]) == 2 * (2 * 4 * 8 * 8) * 27 + 600 + 108 + 512
    assert costs.count_contraction([meta(5, 7), meta(9, 7)], [meta(5, 9)]) == 2 * 5 * 7 * 9 + 35 + 63 + 45
    assert costs.summed_contraction([meta(5, 9), meta(4, 5, 7), meta(4, 7, 9)], [meta(5, 9)]) > 2 * 4 * 5 * 7 * 9
    assert costs.transposed_convolution([x, meta(3, 4, 2, 2)], [meta(2, 4, 20, 20)]) > 2 * 600 * 16
    large, pooled = meta(1, 1, 1025, 1025), meta(1, 1, 513, 513)
    assert costs.count_pooling([large, [513, 513]], [pooled]) > 513**4
    assert costs.count_pooling([large, [513]], [pooled]) > 513**4
    assert costs.adaptive_pooling([x, [5, 5]], [meta(2, 3, 5, 5)]) >= 2 * 3 * 25 * 4
    assert costs.build_interpolation_cost(4)([meta(1, 1, 2, 2)], [meta(1, 1, 1000, 1000)]) > 8 * 10**6
    assert costs.count_elements([meta(10**6)], [meta(10**6)]) == 2 * 10**6
    assert (
        costs.count_attention([meta(2, 4, 100, 8), meta(2, 4, 300, 8), meta(2, 4, 300, 8)], []) > 4 * 8 * 100 * 300 * 8
    )
    assert costs.count_recurrence([meta(6, 5, 8), [meta(32, 8), meta(32, 8)]], [meta(6, 5, 8)]) > 2 * 30 * 2 * 32 * 8


EQUATIONS = {
    "ab,bc->ac": ([(5, 7), (7, 9)], 2 * 5 * 7 * 9),
    "a,b,c->": ([(50,), (70,), (90,)], 4 * 50 * 70 * 90),
    "...ab,...bc": ([(2, 3, 5, 7), (3, 7, 9)], 2 * 2 * 3 * 5 * 7 * 9),
    "aab->b": ([(5, 5, 7)], 2 * 5 * 7),
}


@pytest.mark.parametrize(("equation", "case"), EQUATIONS.items())
def test_einsum_costs_every_value_of_its_labels(equation: str, case: tuple[list[tuple[int, ...]], int]) -> None:
    operands = [meta(*shape) for shape in case[0]]
    assert costs.count_einsum([equation, operands, None], []) == case[1] + sum(operand.numel() for operand in operands)


TABLE = torch.randn(4, 3)
WHOLE = torch.tensor
WRONG: dict[str, tuple[list[Any], list[Any]]] = {
    "embedding.default": ([TABLE, WHOLE([3]), -1], [TABLE, WHOLE([4]), -1]),
    "gather.default": ([TABLE, 1, WHOLE([[2]])], [TABLE, 1, WHOLE([[3]])]),
    "index.Tensor": ([TABLE, [WHOLE([True] * 4), WHOLE([-3])]], [TABLE, [None, WHOLE([-4])]]),
    "one_hot.default": ([WHOLE([3]), 4], [WHOLE([4]), 4]),
    "scatter.value": ([TABLE, 0, WHOLE([[0]]), 1.0], [TABLE, 0, WHOLE([[-1]]), 1.0]),
    "cross_entropy_loss.default": (
        [TABLE, WHOLE([0, 1, 2, -100]), None, 1, -100],
        [TABLE, WHOLE([0, 1, 2, 3]), None, 1, -100],
    ),
    "take_along_dim.default": ([TABLE, WHOLE([11]), None], [TABLE, WHOLE([12]), None]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_found_before_it_is_used(name: str) -> None:
    right, wrong = WRONG[name]
    check_indices(RULES[name], right)
    with pytest.raises(DocumentRefused, match="index"):
        check_indices(RULES[name], wrong)


def test_probabilities_are_no_indices() -> None:
    check_indices(RULES["cross_entropy_loss.default"], [TABLE, TABLE, None, 1, -100, 0.0])
