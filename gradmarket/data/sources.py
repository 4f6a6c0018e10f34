"""Reads local data as named arrays: numpy, Parquet, CSV, JSON lines, saved Hugging Face datasets."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final, TypeVar
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from pyarrow import json as json_lines
from safetensors import SafetensorError, deserialize

from gradmarket.data.image_folders import is_image_folder
from gradmarket.data.tables import TableColumns, check_header, convert_table, table_of
from gradmarket.market.errors import NotFound, Refused

Arrays = dict[str, np.ndarray]
Converted = TypeVar("Converted")
HUGGING_FACE: Final = "state.json"
SPLITS: Final = "dataset_dict.json"
SAFETENSORS: Final = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "?",
}  # fmt: skip

_UNREADABLE: Final = (
    *(pa.ArrowException, SafetensorError, zlib.error, TokenError),
    *(OSError, EOFError, MemoryError, RuntimeError, OverflowError, ValueError),
)
_OF_ANOTHER_FORM: Final = (AttributeError, LookupError, TypeError)
"""Errors that readers raise for damaged or locked bytes, and for bytes of another format."""


def load_columns(path: Path, target: str | None = None) -> TableColumns:
    """Reads a file by its suffix, or a folder of npy files or of `Dataset.save_to_disk`; words become categories.

    Raises NotFound, or Refused if it is something else or cannot be parsed.
    """

    def convert(found: Arrays | pa.Table) -> TableColumns:
        return convert_table(found, target) if isinstance(found, pa.Table) else TableColumns(found, {})

    return _read(path, convert)


def _read(path: Path, convert: Callable[[Arrays | pa.Table], Converted]) -> Converted:
    if not path.exists():
        raise NotFound(f"there is no {path}")
    reader = _load_folder if path.is_dir() else READERS.get(path.suffix.lower())
    if reader is None:
        raise Refused(f"{path} is not one of {', '.join(READERS)}, nor a folder of npy files or a saved dataset")
    try:
        return convert(reader(path))
    except BadZipFile:
        raise Refused(f"{path} cannot be read: the archive is cut short or is none: write it again") from None
    except _UNREADABLE as error:
        raise Refused(f"{path} cannot be read: {str(error)[:300]}") from None
    except _OF_ANOTHER_FORM:
        raise Refused(f"{path} cannot be read: it is damaged, or of another format: write it again") from None


def find_table(dataset: Any) -> pa.Table | None:
    """Returns a data frame, or a file or folder that holds a table, as a table; None of anything else."""
    if not isinstance(dataset, str | Path):
        return table_of(dataset)
    if is_image_folder(Path(dataset)):
        return None
    found = _read(Path(dataset), lambda read: read)
    return found if isinstance(found, pa.Table) else None


def _load_npy(path: Path) -> Arrays:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.names is None:
        return {path.stem: array}
    return {name: array[name] for name in array.dtype.names}


def _load_npz(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if other := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise Refused(f"{path} has {other[0]!r}, which is no array: write it with numpy.savez")
    return arrays


def _load_safetensors(path: Path) -> Arrays:
    """Reads a file of safetensors; bfloat16 is widened to float32, which holds all of it."""
    arrays = {}
    for name, entry in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        kind, shape = entry["dtype"], entry["shape"]
        if kind == "BF16":
            array = (np.frombuffer(entry["data"], "<u2").astype("<u4") << np.uint32(16)).view("<f4")
        elif kind in SAFETENSORS:
            array = np.frombuffer(entry["data"], SAFETENSORS[kind])
        else:
            raise Refused(f"{path}: {name} is of {kind}: save it as float32 or as integers")
        arrays[name] = array.reshape(shape)
    return arrays


def _load_folder(path: Path) -> Arrays | pa.Table:
    if (path / SPLITS).is_file():
        splits = ", ".join(str(path / name) for name in json.loads((path / SPLITS).read_text())["splits"])
        raise Refused(f"{path} has several splits: name one of {splits}")
    if (path / HUGGING_FACE).is_file():
        # Reads the Arrow streams that `datasets` wrote, without importing `datasets`
        state = json.loads((path / HUGGING_FACE).read_text())
        if state.get("_indices_data_files"):
            raise Refused(f"{path} is a selection of rows: save it with `flatten_indices()`")
        tables = []
        for file in state["_data_files"]:
            with pa.memory_map(str(path / Path(file["filename"]).name)) as source:
                tables.append(pa.ipc.open_stream(source).read_all())
        return pa.concat_tables(tables)
    files = sorted(path.glob("*.npy"))
    if not files:
        raise Refused(f"{path} has no npy files and is no saved dataset")
    return {name: array for file in files for name, array in _load_npy(file).items()}


READERS: Final[dict[str, Callable[[Path], Arrays | pa.Table]]] = {
    ".npy": _load_npy,
    ".npz": _load_npz,
    ".safetensors": _load_safetensors,
    ".parquet": parquet.read_table,
    ".csv": lambda path: check_header(path, csv.read_csv(path)),
    ".jsonl": json_lines.read_json,
}
