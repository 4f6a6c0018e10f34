"""Partitions are read by a confined child, which may fail or be taken over: the result is plain arrays or an error."""

import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from graphdoc import formats
from graphdoc.errors import OutOfMemory, Refused, RunnerCrashed, TensorsRefused
from graphdoc.figures import Range
from graphdoc.formats import format_of
from graphdoc.runner import Reader, RunnerSettings, reader
from graphdoc.tensors import Expected
from tests.lanes import FULL, leave_to_full

STRANGE = Path(__file__).with_name("strange_child.py")
ARRAYS = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "good": np.array([True, False, True])}
EXPECTED: Expected = {"x": ((3, 4), "float32"), "good": ((3,), "bool")}


@pytest.fixture(scope="module")
def warm() -> Reader:
    with Reader(RunnerSettings(memory_bytes=2**29, seconds=60.0)) as started:
        yield started


@pytest.mark.parametrize("kind", formats.list_format_names())
def test_every_format_is_read_in_the_child(warm: Reader, kind: str) -> None:
    back = warm.read(kind, format_of(kind).write(ARRAYS), EXPECTED)
    assert all(back[name].tobytes() == ARRAYS[name].tobytes() for name in ARRAYS)


@pytest.mark.parametrize("kind", formats.list_format_names())
def test_an_array_that_moves_on_from_another_is_made_of_it(warm: Reader, kind: str) -> None:
    tokens = np.arange(24, dtype=np.int64).reshape(4, 6)
    expected: Expected = {"x": ((4, 5), "int64"), "y": ((4, 5), "int64")}
    data, shifted = format_of(kind).write({"x": tokens}), {"y": "x"}
    back = warm.read(kind, data, expected, shifted)
    assert back["x"].tolist() == tokens[:, :-1].tolist()
    assert back["y"].tolist() == tokens[:, 1:].tolist()
    bad = warm.check(kind, data, expected, {"x": [Range(0, 23, None)], "y": [Range(0, 23, None)]}, shifted)
    assert bad is not None
    assert (bad.input, bad.row, bad.value) == ("y", 3, 23)
    with pytest.raises(TensorsRefused):
        warm.read(kind, data, expected)
    with pytest.raises(TensorsRefused):
        warm.read(kind, format_of(kind).write({"x": tokens, "y": tokens}), expected, shifted)


def test_the_parser_is_another_process_without_torch(warm: Reader) -> None:
    warm.read("parquet", format_of("parquet").write(ARRAYS), EXPECTED)
    maps = Path(f"/proc/{warm.pid}/maps").read_text()
    assert "libparquet" in maps
    assert "libtorch" not in maps


def test_a_refusal_leaves_the_child_warm(warm: Reader) -> None:
    before = warm.pid
    with pytest.raises(TensorsRefused, match="no zip"):
        warm.read("npz", b"PK", EXPECTED)
    with pytest.raises(Refused, match="there is jsonl"):
        warm.read("pickle", b"", EXPECTED)
    assert warm.pid == before


def test_more_than_fits_is_not_even_sent(warm: Reader) -> None:
    with pytest.raises(TensorsRefused, match="file and arrays take"):
        warm.read("npy", b"", {"x": ((2**40,), "float32")})


@FULL
def test_a_bomb_that_declares_itself_rightly_ends_in_the_childs_own_memory(tmp_path: Path) -> None:
    """Rows are as declared, but each page inflates: too much for the child is only an error here."""
    strings = pa.array(["a" * 2**22] * 24).dictionary_encode()
    pq.write_table(pa.table({"x": strings}), tmp_path / "bomb", compression="zstd", store_schema=False)
    data = (tmp_path / "bomb").read_bytes()
    assert len(data) < 2**18
    with Reader(RunnerSettings(memory_bytes=2**26)) as small:
        with pytest.raises(TensorsRefused, match="x is string"):
            small.read("parquet", data, {"x": ((24,), "int64")})
        rows = format_of("npy").write({"x": np.zeros(6 * 2**20, np.float32)})
        with pytest.raises(OutOfMemory):
            small.read("npy", rows, {"x": ((6 * 2**20,), "float32")})


def test_a_child_that_is_killed_is_replaced() -> None:
    data = format_of("npz").write(ARRAYS)
    with Reader() as started:
        started.read("npz", data, EXPECTED)
        psutil.Process(started.pid).kill()
        with pytest.raises(RunnerCrashed):
            started.read("npz", data, EXPECTED)
        assert started.read("npz", data, EXPECTED)["x"].shape == (3, 4)
        pid = started.pid
    assert pid is not None
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    "behaviour", leave_to_full(["a pickle", "noise", "deep", "an unknown error", "a crash", "odd truths"], 2)
)
def test_a_child_that_was_taken_over_gets_nothing_but_an_error(monkeypatch: pytest.MonkeyPatch, behaviour: str) -> None:
    monkeypatch.setattr(reader, "COMMAND", (sys.executable, str(STRANGE), behaviour))
    with Reader(RunnerSettings(seconds=60.0)) as taken:
        with pytest.raises(RunnerCrashed):
            taken.read("npz", format_of("npz").write(ARRAYS), EXPECTED)
        assert taken.pid is None
