"""Files that are damaged, locked, of another form, or with false claims: one sentence each."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from gradmarket.data import sources
from gradmarket.market.errors import Refused

NAME, SIZE = slice(26, 28), slice(28, 30)
"""Of a member's header: the lengths of its name and of what follows it (APPNOTE.TXT of zip, 4.3.7)."""


def npy(header: str) -> bytes:
    padded = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(16)


HEADERS = {
    "too large a claim": "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}",
    "no such number": "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
    "cut short": "{'descr': '<f8', 'fortran_order': False, 'shape': (1,",
    "other keys": "{1: 2, 'a': 3}",
    "no such kind": "{'descr': '<q9', 'fortran_order': False, 'shape': (1,)}",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_an_array_whose_header_is_wrong_is_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "x.npy").write_bytes(npy(header))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", npy(header))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(Refused, match="cannot be read"):
            sources.load_columns(tmp_path / name)


@pytest.mark.parametrize("damage", ["its bytes", "locked", "another packing"])
def test_an_archive_that_cannot_be_unpacked_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.arange(40.0))
    whole = bytearray(path.read_bytes())
    listed = whole.find(b"PK\x01\x02")
    begins = 30 + int.from_bytes(whole[NAME], "little") + int.from_bytes(whole[SIZE], "little")
    if damage == "locked":
        whole[6], whole[listed + 8] = 1, 1
    elif damage == "another packing":
        whole[8], whole[listed + 10] = 97, 97
    else:
        whole[begins : begins + 8] = bytes(255 - byte for byte in whole[begins : begins + 8])
    path.write_bytes(whole)
    with pytest.raises(Refused, match="cannot be read"):
        sources.load_columns(path)


SAVED = {
    "a list": ("state.json", "[]"),
    "a number": ("state.json", "3"),
    "files that are none": ("state.json", '{"_data_files": [3]}'),
    "a name that is none": ("state.json", '{"_data_files": [{"filename": 3}]}'),
    "nothing": ("state.json", '{"_data_files": []}'),
    "splits that are none": ("dataset_dict.json", '{"splits": 3}'),
    "a list of splits": ("dataset_dict.json", "[]"),
}


@pytest.mark.parametrize(("name", "text"), SAVED.values(), ids=SAVED.keys())
def test_a_saved_dataset_whose_list_is_damaged_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Refused, match="cannot be read"):
        sources.load_columns(tmp_path)
