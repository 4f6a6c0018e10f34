"""The allow-list agrees with torch, and holds nothing that writes, draws or leaves memory as it was."""

import pytest
import torch

from gradmarket.market.model.document.costs import adaptive_pooling, contraction, convolution, pooling
from gradmarket.market.model.document.interpret import TORCH_MEMORY_FORMATS, TORCH_TYPES
from gradmarket.market.model.document.operators import COSTS, OPERATORS, OWN_CALLS
from gradmarket.market.model.document.signatures import ATEN, DTYPES, MEMORY_FORMATS, OWN, SIGNATURES, WORDS

OURS = {
    "Tensor": {"tensor", "operand"},
    "Optional[Tensor]": {"tensor?"},
    "List[Tensor]": {"tensors"},
    "int": {"int"},
    "Optional[int]": {"int?", "dtype?", "memory?", "none"},
    "List[int]": {"ints"},
    "Optional[List[int]]": {"ints?"},
    "float": {"float"},
    "Optional[float]": {"number?"},
    "number": {"number"},
    "Optional[number]": {"number?"},
    "bool": {"bool"},
    "Optional[bool]": {"none"},
    "Optional[Device]": {"none"},
    "str": WORDS,
}
FORBIDDEN = {"empty", "as_strided", "bernoulli", "rand", "item", "nonzero", "instance_norm", "dropout"}


def schema_of(name: str) -> torch.FunctionSchema:
    packet, overload = name.split(".")
    schema: torch.FunctionSchema = getattr(getattr(torch.ops.aten, packet), overload)._schema
    return schema


@pytest.mark.parametrize("name", ATEN)
def test_the_signature_is_torch_s(name: str) -> None:
    schema, signature = schema_of(name), SIGNATURES[name]
    assert len(schema.arguments) == len(signature.arguments)
    for argument, kind in zip(schema.arguments, signature.arguments, strict=True):
        assert kind in OURS[str(argument.type)], argument.name
    results = ["tensors" if "List" in str(entry.type) else "tensor" for entry in schema.returns]
    assert list(signature.results) == results


@pytest.mark.parametrize("name", ATEN)
def test_nothing_writes_in_place_or_draws(name: str) -> None:
    schema = schema_of(name)
    assert not schema.is_mutable
    assert not any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    packet, overload = name.split(".")
    assert torch.Tag.nondeterministic_seeded not in getattr(getattr(torch.ops.aten, packet), overload).tags
    assert packet not in FORBIDDEN


def test_every_key_can_be_called_and_every_rule_is_used() -> None:
    assert set(OPERATORS) == set(SIGNATURES) == set(ATEN) | set(OWN)
    assert set(OWN_CALLS) == set(OWN)
    assert set(COSTS) <= {name.split(".")[0] for name in SIGNATURES}
    assert set(TORCH_TYPES) == set(DTYPES)
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


def test_costs_by_hand() -> None:
    x = torch.empty(2, 3, 10, 10, device="meta")
    weight = torch.empty(4, 3, 3, 3, device="meta")
    convolved = torch.empty(2, 4, 8, 8, device="meta")
    assert convolution([x, weight], [convolved]) == 2 * (2 * 4 * 8 * 8) * 27 + 600 + 108 + 512
    assert contraction([torch.empty(5, 7), torch.empty(9, 7)], [torch.empty(5, 9)]) == 2 * 5 * 7 * 9 + 35 + 63 + 45
    large = torch.empty(1, 1, 1025, 1025, device="meta")
    pooled = torch.empty(1, 1, 513, 513, device="meta")
    assert pooling([large, [513, 513]], [pooled]) > 513**4
    assert pooling([large, [513]], [pooled]) > 513**4
    assert adaptive_pooling([x, [5, 5]], [torch.empty(2, 3, 5, 5, device="meta")]) >= 2 * 3 * 25 * 4
