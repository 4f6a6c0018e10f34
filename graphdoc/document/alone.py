"""Traces a model on the code path that it takes outside an export; another path could compute other bits.

Some libraries check whether they are being traced, and then build masks that they otherwise omit. If the normal path
depends on the data's values, the bitwise comparison detects it.
"""

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

_MASKS: Final = "transformers.masking_utils"


@contextmanager
def as_when_alone() -> Iterator[None]:
    """Hides from libraries, within the block, that an export is running."""
    masks = sys.modules.get(_MASKS)
    with (
        _replace_function(torch.compiler, "is_exporting", lambda: False),
        # transformers' search for several sequences in one row; outside an export it finds just one
        _replace_function(masks, "find_packed_sequence_indices", lambda *_, **__: None),
        _replace_function(builtins, "len", _count_elements),
    ):
        yield


@contextmanager
def _replace_function(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Replaces the owner's function within the block, if the owner has one of that name."""
    before = getattr(owner, name, None)
    if before is None:
        yield
        return
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


_count_of: Final = len


def _count_elements(value: Any) -> Any:
    """Replaces `len`: returns the symbol of a tensor's number of rows, where Python requires a whole number."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else _count_of(value)
