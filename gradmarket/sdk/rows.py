"""Converts a researcher's dataset to arrays: one or more inputs, and the target `y`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from gradmarket.data import sources
from gradmarket.data.inputs import select_inputs
from gradmarket.market.errors import Refused
from gradmarket.sdk.arguments import array_of

INPUTS = ("x", "y")


def arrays_of(dataset: Any, target: str | None = None) -> dict[str, np.ndarray]:
    """Returns `x`, or inputs of other names, and `y`, with one row per example.

    `dataset` is a TensorDataset or another dataset of pairs, a pair of tensors or arrays, a mapping of names to them,
    or a path to a file or folder, such as a saved Hugging Face dataset (see sources.read). Of named columns, `target`
    becomes y and all others x, side by side; without `target`, one must be named y, and the others are the module's
    inputs by name. Raises Refused and names the fault.
    """
    if isinstance(dataset, str | Path):
        arrays = select_inputs(sources.load_arrays(Path(dataset)), target=target)
    elif isinstance(dataset, Mapping):
        arrays = select_inputs({name: array_of(name, value) for name, value in dataset.items()}, target=target)
    else:
        arrays = select_inputs(dict(zip(INPUTS, _build_pair(dataset), strict=True)))
    if "y" not in arrays or len(arrays) < 2:
        raise Refused(f"a dataset has inputs and y, this one {', '.join(arrays)[:200]}: name its target column")
    return dict(arrays)


def _build_pair(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(dataset, TensorDataset):
        pair = tuple(dataset.tensors)
    elif isinstance(dataset, Dataset):
        pair = _stack_examples(dataset)
    else:
        pair = tuple(dataset) if isinstance(dataset, tuple | list) else ()
    if len(pair) != 2:
        raise Refused("a dataset is a pair (x, y), a mapping, a torch dataset of pairs, or a path to one on disk")
    return array_of("x", pair[0]), array_of("y", pair[1])


def _stack_examples(dataset: Any) -> tuple[Tensor, ...]:
    """Stacks every example of an indexed dataset, in order. Raises Refused if their shapes differ."""
    if not hasattr(dataset, "__len__"):
        raise Refused("a dataset without a length cannot be cut into partitions")
    examples = [dataset[index] for index in range(len(dataset))]
    try:
        return tuple(
            torch.stack([torch.as_tensor(value) for value in values]) for values in zip(*examples, strict=True)
        )
    except (RuntimeError, TypeError, ValueError) as error:
        raise Refused(f"the examples do not stack: {str(error)[:200]}: pad them to one shape") from None
