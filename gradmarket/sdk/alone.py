"""A model is traced on the path that it takes when it trains alone: another one has other bits.

Libraries ask whether they are traced, and then build masks that they leave out otherwise. Where the path that they
would take alone depends on values of the data, the comparison of bits finds it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

_MASKS: Final = "transformers.masking_utils"


@contextmanager
def as_when_alone() -> Iterator[None]:
    """Inside, nobody is told that an export is under way."""
    masks = sys.modules.get(_MASKS)
    with (
        _replaced(torch.compiler, "is_exporting", _no),
        _replaced(masks, "find_packed_sequence_indices", _one_sequence),
    ):
        yield


@contextmanager
def _replaced(owner: Any, name: str, function: Any) -> Iterator[None]:
    """The owner's function is another one inside, where it has one of that name."""
    before = getattr(owner, name, None)
    if before is None:
        yield
        return
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _no() -> bool:
    return False


def _one_sequence(*_: Any, **__: Any) -> None:
    """transformers looks at the positions for several sequences in one row: alone it finds that there is one."""
