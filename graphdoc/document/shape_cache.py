"""Caches the results of ATen's operators for tensors without elements, so that the same call is computed once.

torch computes shapes in Python, which takes most of the time of counting. The form of a result depends on the shapes,
strides and element types of the tensors that are read, and on the other arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

_Forms = tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...]
_Key = tuple[Any, ...]


class ShapeCache:
    """Cached results of calls. A call that gives a view, writes, or reads a tensor with elements is made every time."""

    def __init__(self) -> None:
        self._known: dict[_Key, _Forms] = {}
        self._new: dict[Any, bool] = {}

    def call_cached(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Returns the call's result."""
        if func not in self._new:
            schema = func._schema
            plain = all(str(given.type) == "Tensor" and given.alias_info is None for given in schema.returns)
            new = bool(schema.returns) and plain and not schema.is_mutable
            self._new[func] = new
        key = _build_key((*args, *kwargs.items())) if self._new[func] else None
        if key is None:
            return func(*args, **kwargs)
        forms = self._known.get((func, *key))
        if forms is None:
            result = func(*args, **kwargs)
            tensors = list(result) if isinstance(result, tuple) else [result]
            self._known[(func, *key)] = ()  # where a result is no tensor, or shares memory with an argument
            if all(isinstance(one, Tensor) and one.is_meta for one in tensors):
                leaves = (*tree_leaves((args, kwargs)), *tensors)
                held = [leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, Tensor)]
                if all(held.count(one.untyped_storage()._cdata) == 1 for one in tensors):
                    self._known[(func, *key)] = tuple((one.shape, one.stride(), one.dtype) for one in tensors)
            return result
        if not forms:
            return func(*args, **kwargs)
        made = [torch.empty_strided(size, stride, dtype=dtype, device="meta") for size, stride, dtype in forms]
        return tuple(made) if len(func._schema.returns) > 1 else made[0]


def _build_key(values: Sequence[Any]) -> _Key | None:
    """Returns the key of a call: forms and plain values; None where a result depends on more."""
    parts: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            if not value.is_meta:
                return None
            parts += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, list | tuple):
            inner = _build_key(value)
            if inner is None:
                return None
            parts.append(inner)
        else:
            parts += (type(value), value if isinstance(value, _PLAIN) else str(value))
    return tuple(parts)


_PLAIN: Final = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
