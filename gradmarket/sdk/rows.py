"""What a researcher calls a dataset, as arrays: one or more inputs, and the target `y`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from gradmarket.data import sources
from gradmarket.data.inputs import chosen
from gradmarket.market.errors import Refused

INPUTS = ("x", "y")


def arrays_of(dataset: Any, target: str | None = None) -> dict[str, np.ndarray]:
    """`x`, or inputs of other names, and `y`, with one row each per example.

    `dataset` is a TensorDataset or another dataset of pairs, a pair of tensors or arrays, a mapping of names to them,
    or a path: a file, or a folder such as a saved Hugging Face dataset (see sources.read). Of named columns `target`
    becomes y and all others x, side by side; with none one is called y, and the others are the module's inputs by name.
    Raises Refused, naming what is odd.
    """
    if isinstance(dataset, str | Path):
        named = chosen(sources.read(Path(dataset)), target=target)
    elif isinstance(dataset, Mapping):
        named = chosen({name: _array(name, value) for name, value in dataset.items()}, target=target)
    else:
        named = chosen(dict(zip(INPUTS, _pair(dataset), strict=True)))
    if "y" not in named or len(named) < 2:
        raise Refused(f"a dataset has inputs and y, this one {', '.join(named)[:200]}: name its target column")
    return dict(named)


def _pair(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(dataset, TensorDataset):
        found = tuple(dataset.tensors)
    elif isinstance(dataset, Dataset):
        found = _stacked(dataset)
    else:
        found = tuple(dataset) if isinstance(dataset, tuple | list) else ()
    if len(found) != 2:
        raise Refused("a dataset is a pair (x, y), a mapping, a torch dataset of pairs, or a path to one on disk")
    return _array("x", found[0]), _array("y", found[1])


def _stacked(dataset: Any) -> tuple[Tensor, ...]:
    """Every example of a dataset that is indexed, in order. Raises Refused where they are of different shapes."""
    if not hasattr(dataset, "__len__"):
        raise Refused("a dataset without a length cannot be cut into partitions")
    examples = [dataset[index] for index in range(len(dataset))]
    try:
        return tuple(
            torch.stack([torch.as_tensor(value) for value in values]) for values in zip(*examples, strict=True)
        )
    except (RuntimeError, TypeError, ValueError) as error:
        raise Refused(f"the examples do not stack: {str(error)[:200]}") from error


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise Refused(f"{name} is no array of numbers")
    return array
