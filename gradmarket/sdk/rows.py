"""Converts a researcher's dataset to arrays: one or more inputs, and the target `y`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gradmarket.data import sources
from gradmarket.data.image_folders import Images, is_image_folder, load_image_rows, scale_pixels
from gradmarket.data.inputs import pick_columns, select_inputs
from gradmarket.data.tables import build_encoding, convert_table, encode_table, list_known_inputs, table_of
from gradmarket.data.token_rows import Text, load_text_rows
from gradmarket.market.errors import Refused
from gradmarket.market.manifest import Encoding, TextEncoding
from gradmarket.sdk.arguments import array_of

INPUTS = ("x", "y")


@dataclass(frozen=True)
class DatasetRows:
    """A dataset's inputs and `y`, with one row per example; `encoding` describes the conversion of a table."""

    arrays: dict[str, np.ndarray]
    encoding: Encoding | TextEncoding | None = None
    classes: int | None = None
    """Labels in y are below it, where that is known; else one more than the greatest."""


def load_rows(dataset: Any, target: str | None = None) -> DatasetRows:
    """Returns `x`, or inputs of other names, and `y`.

    `dataset` is a data frame of pandas or polars, an Arrow table, a Hugging Face dataset, a path to a file or folder
    (see sources.load_columns), Text or Images, a TensorDataset or another dataset of pairs, a
    DataLoader of one, a pair of tensors or arrays, or a mapping of names to them. Of named columns, `target` becomes y
    and all others x, side by side; without `target`, one must be named y, and the others are the module's inputs by
    name. Words become categories (data.tables). Raises Refused and names the fault.
    """
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    if isinstance(dataset, Text):
        text = load_text_rows(dataset)
        return DatasetRows(text.arrays, text.encoding, text.encoding.vocabulary)
    if isinstance(dataset, str | Path) and is_image_folder(Path(dataset)):
        dataset = Images(dataset)
    if isinstance(dataset, Images):
        pictures = load_image_rows(dataset)
        return DatasetRows(scale_pixels(pictures.arrays), pictures.encoding)
    table = table_of(dataset)
    if table is None and not isinstance(dataset, str | Path):
        if isinstance(dataset, Mapping):
            arrays = select_inputs({name: array_of(name, value) for name, value in dataset.items()}, target=target)
        else:
            arrays = select_inputs(dict(zip(INPUTS, _build_pair(dataset), strict=True)))
        return DatasetRows(_check_inputs(arrays))
    columns = sources.load_columns(Path(dataset), target) if table is None else convert_table(table, target)
    encoding = None
    if table is not None or columns.categories:
        encoding = build_encoding(pick_columns(list(columns.arrays), target=target), columns.categories)
    return DatasetRows(_check_inputs(select_inputs(columns.arrays, target=target)), encoding)


def load_validation(dataset: Any, target: str | None, training: DatasetRows) -> dict[str, np.ndarray]:
    """Returns rows to measure on, converted as the training rows were: a table by their categories.

    Raises Refused where their inputs differ from the training rows'.
    """
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    try:
        table = sources.find_table(dataset) if isinstance(training.encoding, Encoding) else None
        if isinstance(training.encoding, Encoding) and table is not None:
            columns = encode_table(table, training.encoding)
            arrays = dict(select_inputs(columns, list_known_inputs(columns, training.encoding)))
        else:
            arrays = load_rows(dataset, target).arrays
    except Refused as error:
        raise Refused(f"validation: {error.detail}", error.remedy) from None
    for name, rows in training.arrays.items():
        other = arrays.get(name)
        if other is None or other.shape[1:] != rows.shape[1:] or other.dtype != rows.dtype:
            given = "is missing" if other is None else f"is {other.dtype}{list(other.shape[1:])} a row"
            raise Refused(f"validation: {name} {given}, and training has {rows.dtype}{list(rows.shape[1:])}")
    return {name: arrays[name] for name in training.arrays}


def _check_inputs(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    if "y" not in arrays or len(arrays) < 2:
        raise Refused(f"a dataset has inputs and y, this one {', '.join(arrays)[:200]}: name its target column")
    return dict(arrays)


def _build_pair(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(dataset, TensorDataset):
        pair = tuple(dataset.tensors)
    elif isinstance(dataset, Dataset):
        # stacks every example of an indexed dataset, in order
        if not hasattr(dataset, "__len__"):
            raise Refused("a dataset without a length cannot be cut into partitions")
        examples = [dataset[index] for index in range(len(dataset))]
        try:
            pair = tuple(
                torch.stack([torch.as_tensor(value) for value in values]) for values in zip(*examples, strict=True)
            )
        except (RuntimeError, TypeError, ValueError) as error:
            raise Refused(f"the examples do not stack: {str(error)[:200]}: pad them to one shape") from None
    else:
        pair = tuple(dataset) if isinstance(dataset, tuple | list) else ()
    if len(pair) != 2:
        raise Refused("a dataset is a pair (x, y), a mapping, a data frame, a torch dataset of pairs, or a path to one")
    return array_of("x", pair[0]), array_of("y", pair[1])
