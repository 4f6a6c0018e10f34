"""The callable of each key of the allow-list. Arguments are positional, in the table's order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from graphdoc.conditions import condition_of
from graphdoc.conditions.condition_rules import Condition
from graphdoc.document.checks import RULES, Rule
from graphdoc.document.kernels import KERNELS
from graphdoc.operators import ALLOWED
from graphdoc.operators.entry import OperatorEntry

TORCH_TYPES: Final = {
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
    "int16": torch.int16,
    "int8": torch.int8,
}
TORCH_MEMORY_FORMATS: Final = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}


@dataclass(frozen=True)
class OperatorCall:
    """`call` takes the arguments in the table's order, except those of `keywords`, which are passed by name."""

    call: Callable[..., Any]
    keywords: Mapping[int, str]
    entry: OperatorEntry
    indices: Rule | None
    condition: Condition | None
    key: str


def select_overload(key: str) -> torch._ops.OpOverload:
    """Returns the ATen operator of a key of our own tables."""
    packet, name = key.split(".")
    operator: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), name)
    return operator


def _build_operator_call(key: str, entry: OperatorEntry) -> OperatorCall:
    if entry.own:
        return OperatorCall(KERNELS[key], {}, entry, None, condition_of(key), key)
    aten = select_overload(key)
    keywords = {place: argument.name for place, argument in enumerate(aten._schema.arguments) if argument.kwarg_only}
    return OperatorCall(aten._op, keywords, entry, RULES.get(key), condition_of(key), key)


OPERATORS: Final = {key: _build_operator_call(key, entry) for key, entry in ALLOWED.items()}
"""The allow-list with its callables: a document's `op` is looked up only here."""
