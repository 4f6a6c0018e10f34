"""Reads local data as named arrays: numpy, Parquet, CSV, JSON lines, saved Hugging Face datasets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from pyarrow import json as json_lines
from safetensors import SafetensorError
from safetensors.numpy import load_file

from gradmarket.data.tables import arrays_of
from gradmarket.market.errors import NotFound, Refused

Arrays = dict[str, np.ndarray]
HUGGING_FACE: Final = "state.json"
SPLITS: Final = "dataset_dict.json"


def read(path: Path) -> Arrays:
    """Reads a file by its suffix, or a folder of npy files or of `Dataset.save_to_disk`.

    Raises NotFound, or Refused if it is something else or cannot be parsed.
    """
    if not path.exists():
        raise NotFound(f"there is no {path}")
    reader = _folder if path.is_dir() else READERS.get(path.suffix)
    if reader is None:
        raise Refused(f"{path} is none of {', '.join(READERS)}, nor a folder of npy files or a saved dataset")
    try:
        return reader(path)
    except (pa.ArrowException, SafetensorError, OSError, ValueError, KeyError) as error:
        raise Refused(f"{path} cannot be read: {str(error)[:300]}") from error


def _npy(path: Path) -> Arrays:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.names is None:
        return {path.stem: array}
    return {name: array[name] for name in array.dtype.names}


def _npz(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _folder(path: Path) -> Arrays:
    if (path / SPLITS).is_file():
        splits = ", ".join(str(path / name) for name in json.loads((path / SPLITS).read_text())["splits"])
        raise Refused(f"{path} has several splits: name one of {splits}")
    if (path / HUGGING_FACE).is_file():
        return _hugging_face(path)
    files = sorted(path.glob("*.npy"))
    if not files:
        raise Refused(f"{path} has no npy files and is no saved dataset")
    return {name: array for file in files for name, array in _npy(file).items()}


def _hugging_face(path: Path) -> Arrays:
    """Reads the Arrow streams that `datasets` wrote, without importing `datasets`."""
    state = json.loads((path / HUGGING_FACE).read_text())
    if state.get("_indices_data_files"):
        raise Refused(f"{path} is a selection of rows: save it with `flatten_indices()`")
    tables = []
    for file in state["_data_files"]:
        with pa.memory_map(str(path / Path(file["filename"]).name)) as source:
            tables.append(pa.ipc.open_stream(source).read_all())
    return arrays_of(pa.concat_tables(tables))


READERS: Final[dict[str, Callable[[Path], Arrays]]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": lambda path: dict(load_file(path)),
    ".parquet": lambda path: arrays_of(parquet.read_table(path)),
    ".csv": lambda path: arrays_of(csv.read_csv(path)),
    ".jsonl": lambda path: arrays_of(json_lines.read_json(path)),
}
