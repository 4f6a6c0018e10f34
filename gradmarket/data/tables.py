"""Converts an Arrow table to arrays: numbers, booleans, lists of these with equal length, and words as categories.

A column of words, or of a dictionary's values, becomes one column of 0 and 1 for each of its words, in their sorted
order; where it is the target, the number of its word. The manifest keeps the words (market.manifest.Encoding), so
that rows which come later are converted alike.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute

from gradmarket.market.errors import Refused
from gradmarket.market.manifest import CATEGORIES_AT_MOST, WORD_LENGTH, Encoding

INT64_END: Final = 2.0**63
TARGET: Final = "y"


@dataclass(frozen=True)
class TableColumns:
    """A table's columns as arrays of one row each, and the words of those that had words."""

    arrays: dict[str, np.ndarray]
    categories: dict[str, tuple[str, ...]]


def table_of(dataset: Any) -> pa.Table | None:
    """Returns a data frame (pandas, polars), an Arrow table or a Hugging Face dataset as a table; None of others."""
    if isinstance(dataset, pa.Table):
        return dataset
    if hasattr(dataset, "__arrow_c_stream__"):
        return pa.table(dataset)
    arrow = getattr(dataset, "with_format", None)
    if arrow is not None and hasattr(dataset, "column_names"):
        found = arrow("arrow")[:]
        return found if isinstance(found, pa.Table) else None
    return None


def convert_table(table: pa.Table, target: str | None = None) -> TableColumns:
    """Returns every column by name, but for the index that pandas writes beside them.

    Raises Refused and names a column of another type, or of another's name, or with too many words.
    """
    index = _index_columns(table.schema)
    names = [name for name in table.column_names if name not in index]
    _check_names(names, names)
    words = {name: _list_words(name, table.column(name)) for name in names if _has_words(table.column(name).type)}
    labels = target if target is not None else TARGET
    arrays = {
        name: _encode_words(name, table.column(name), words[name], as_label=name == labels)
        if name in words
        else _convert_to_array(name, table.column(name))
        for name in names
    }
    return TableColumns(arrays, words)


def encode_table(table: pa.Table, encoding: Encoding) -> dict[str, np.ndarray]:
    """Returns the inputs' columns as they were converted before training, those of `y` only where the table has them.

    A word that training had not becomes 0 in all of its columns. Raises Refused for a column that is missing, there
    twice, or of another type than its training words, and for a new word of y.
    """
    wanted = [name for kind, names in encoding.inputs.items() for name in names if kind != TARGET]
    labels = [name for name in encoding.inputs.get(TARGET, ()) if name in table.column_names]
    if missing := [name for name in wanted if name not in table.column_names]:
        raise Refused(f"there is no column {', '.join(missing)[:200]}: the model was trained with it")
    _check_names((*wanted, *labels), table.column_names)
    for name in (*wanted, *labels):
        if name in encoding.categories:
            # Raises Refused for a type whose values never equal any of `words`: all of its rows would
            # silently be zeros
            column = table.column(name)
            words = encoding.categories[name]
            if column.null_count:
                raise Refused(f"column {name!r} has {column.null_count} missing values: fill or drop them first")
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if pa.types.is_boolean(kind):
                fits = not {"True", "False"}.isdisjoint(words)
            elif pa.types.is_integer(kind):
                fits = any(word.removeprefix("-").isdecimal() and str(int(word)) == word for word in words)
            elif pa.types.is_floating(kind):
                fits = any(_is_number(word) and str(float(word)) == word for word in words)
            else:
                fits = _has_words(column.type)
            if not fits:
                fault = (
                    f"column {name!r} is {str(column.type)[:80]}: training had words there, {', '.join(words)[:200]}"
                )
                raise Refused(f"{fault}; write it as they are")
    return {
        name: _encode_words(name, table.column(name), encoding.categories[name], as_label=name in labels)
        if name in encoding.categories
        else _convert_to_array(name, table.column(name))
        for name in (*wanted, *labels)
    }


def list_known_inputs(columns: Mapping[str, np.ndarray], encoding: Encoding) -> dict[str, tuple[str, ...]]:
    """Returns the columns of the inputs that were made of these alone: of rows without labels all but y."""
    return {name: names for name, names in encoding.inputs.items() if all(column in columns for column in names)}


def build_encoding(inputs: Mapping[str, Sequence[str]], categories: Mapping[str, tuple[str, ...]]) -> Encoding:
    """Returns how these inputs were made of a table's columns."""
    used = {name for names in inputs.values() for name in names}
    return Encoding(
        inputs={name: tuple(columns) for name, columns in inputs.items()},
        categories={name: words for name, words in categories.items() if name in used},
    )


def _check_names(wanted: Iterable[str], names: Sequence[str]) -> None:
    if (twice := next((name for name in wanted if names.count(name) > 1), None)) is not None:
        raise Refused(f"two columns are named {twice!r}: rename one")


def _has_words(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or
                pa.types.is_dictionary(kind))  # fmt: skip


def _list_words(name: str, column: pa.ChunkedArray) -> tuple[str, ...]:
    """Returns the column's words, sorted. Raises Refused for missing ones, and for a text or an id in its place."""
    if column.null_count:
        raise Refused(f"column {name!r} has {column.null_count} missing values: fill or drop them first")
    words = sorted(set(map(str, compute.unique(column).to_pylist())))
    if len(words) > CATEGORIES_AT_MOST:
        raise Refused(
            f"column {name!r} has {len(words)} different words, more than {CATEGORIES_AT_MOST} categories: drop it, or "
            "turn it into numbers first"
        )
    if long := next((word for word in words if len(word) > WORD_LENGTH), None):
        raise Refused(f"column {name!r} holds text ({long[:40]!r}…): turn it into numbers first")
    numbers = sum(map(_is_number, words))
    if 2 * numbers > len(words) and not pa.types.is_dictionary(column.type):
        other = next((word for word in words if not _is_number(word)), words[0])
        raise Refused(
            f"column {name!r} holds numbers as text ({other[:40]!r} among them): turn it into numbers, or into a "
            'categorical column first (pandas: astype("category"))'
        )
    return tuple(words)


def _encode_words(name: str, column: pa.ChunkedArray, words: Sequence[str], as_label: bool) -> np.ndarray:
    """Returns one column of 0 and 1 for each word, float32; of labels the number of the word, int64.

    No value is missing.
    """
    codes = {word: number for number, word in enumerate(words)}
    encoded = column.dictionary_encode().combine_chunks() if not pa.types.is_dictionary(column.type) else column
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    own = np.array([codes.get(str(word), -1) for word in encoded.dictionary.to_pylist()], np.int64)
    numbers = own[encoded.indices.to_numpy(zero_copy_only=False)] if len(encoded) else np.zeros(0, np.int64)
    if as_label:
        if len(numbers) and numbers.min() < 0:
            raise Refused(f"column {name!r} has a class that training lacked; training had {', '.join(words)[:300]}")
        return numbers
    columns = np.zeros((len(numbers), len(words)), np.float32)
    known = np.flatnonzero(numbers >= 0)
    columns[known, numbers[known]] = 1.0
    return columns


def _index_columns(schema: pa.Schema) -> set[str]:
    """Returns the columns of a table's index by pandas's metadata in the schema; no other library records them."""
    try:
        metadata = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    except (ValueError, RecursionError):
        return set()
    columns = metadata.get("index_columns") if isinstance(metadata, dict) else None
    return {name for name in columns if isinstance(name, str)} if isinstance(columns, list) else set()


def check_header(path: Path, table: pa.Table) -> pa.Table:
    """Returns a CSV file's columns without an unnamed index.

    Raises Refused where its first row is no header, and for whole numbers beyond int64.
    """
    names = table.column_names
    if names and all(_is_number(name) for name in names):
        raise Refused(f"{path}: the first row holds numbers ({', '.join(names)[:80]}): put a row of names above it")
    if names and not names[0]:
        counted = table.column(0).to_pylist() == list(range(len(table)))
        if not counted:
            raise Refused(f"{path}: the first column has no name: give it one in the first row, or drop it")
        table = table.remove_column(0)
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if not pa.types.is_floating(column.type) or not len(column):
            continue
        numbers = column.to_numpy()  # a reader of CSV takes whole numbers beyond int64 as floats
        if np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all():
            largest = float(np.abs(numbers).max())
            if INT64_END <= largest < 2 * INT64_END:
                raise Refused(f"{path}: column {name!r} has whole numbers beyond int64: write a code of fewer digits")
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _convert_to_array(name: str, column: pa.ChunkedArray) -> np.ndarray:
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.read_chunks) if values.num_chunks else pa.array([], column.type)
    shape = [len(values)]
    while True:
        if values.null_count:
            raise Refused(f"column {name!r} has {values.null_count} missing values: fill or drop them first")
        if isinstance(values, pa.FixedShapeTensorArray):
            return np.asarray(values.to_numpy_ndarray())
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        kind = values.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            break
        flat = values.flatten()
        lengths = set(values.value_lengths().to_pylist())
        if len(lengths) > 1:
            raise Refused(f"column {name!r} has lists of different lengths, {min(lengths)} to {max(lengths)}")
        shape.append(lengths.pop() if lengths else 0)
        values = flat
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise Refused(f"column {name!r} is {kind}: turn it into numbers first")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)
