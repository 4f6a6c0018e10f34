"""One contract for every format of partitions, and the attacks of hostile files on each."""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from graphdoc import formats
from graphdoc.errors import Refused, TensorsRefused
from graphdoc.formats import Arrays, format_of
from graphdoc.tensors import Expected

DTYPES = ("float32", "int64", "int32", "uint8", "bool")
SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)
COLUMNS = st.dictionaries(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    st.tuples(SHAPES, st.sampled_from(DTYPES)),
    min_size=1,
    max_size=4,
)


def drawn(seed: int, rows: int, columns: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)

    def array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype == "float32":
            return generator.standard_normal((rows, *shape)).astype(np.float32)
        low, high = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return generator.integers(low, high, (rows, *shape), endpoint=dtype != "bool", dtype=np.dtype(dtype))

    return {name: array(shape, dtype) for name, (shape, dtype) in columns.items()}


def declared(arrays: Arrays) -> Expected:
    return {name: (array.shape, array.dtype.name) for name, array in arrays.items()}


SMALL = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "y": np.array([0, 1, 2])}
EXPECTED = declared(SMALL)


@pytest.mark.parametrize("name", formats.list_format_names())
class TestFormat:
    @given(seed=st.integers(0, 2**32), rows=st.integers(1, 20), columns=COLUMNS)
    @example(seed=0, rows=1, columns={"x": ((1,), "bool")})
    def test_written_columns_are_read_back(self, name: str, seed: int, rows: int, columns: Any) -> None:
        arrays = drawn(seed, rows, columns)
        back = format_of(name).read(format_of(name).write(arrays), declared(arrays))
        assert list(back) == sorted(arrays)
        for key, array in arrays.items():
            assert (back[key].dtype, back[key].shape) == (array.dtype, array.shape)
            assert back[key].tobytes() == array.tobytes()
            assert back[key].flags.c_contiguous

    def test_the_same_arrays_are_the_same_bytes(self, name: str) -> None:
        turned = {key: np.asfortranarray(SMALL[key]) for key in reversed(SMALL)}
        assert format_of(name).write(SMALL) == format_of(name).write(turned)

    @pytest.mark.parametrize(
        "other",
        [
            {**EXPECTED, "z": ((3,), "int64")},
            {"x": EXPECTED["x"]},
            {**EXPECTED, "y": ((3,), "bool")},
            {**EXPECTED, "y": ((3, 1), "int64")},
            {**EXPECTED, "x": ((3, 5), "float32")},
            {**EXPECTED, "x": ((3, 2, 3), "float32")},
            {"x": ((4, 4), "float32"), "y": ((4,), "int64")},
            {"x": ((2, 4), "float32"), "y": ((2,), "int64")},
            {"x": ((10**12, 4), "float32"), "y": ((10**12,), "int64")},
        ],
    )
    def test_columns_of_another_declaration_are_refused(self, name: str, other: Expected) -> None:
        with pytest.raises(TensorsRefused):
            format_of(name).read(format_of(name).write(SMALL), other)

    @given(noise=st.binary(max_size=200), place=st.integers(0, 400), keep=st.booleans())
    def test_noise_is_read_as_declared_or_refused(self, name: str, noise: bytes, place: int, keep: bool) -> None:
        whole = format_of(name).write(SMALL)
        data = whole[:place] + noise + (whole[place + len(noise) :] if keep else b"")
        try:
            back = format_of(name).read(data, EXPECTED)
        except TensorsRefused:
            return
        assert declared(back) == EXPECTED

    def test_half_a_file_is_refused(self, name: str) -> None:
        whole = format_of(name).write(SMALL)
        for end in (0, 1, len(whole) // 2, len(whole) - 3):
            with pytest.raises(TensorsRefused):
                format_of(name).read(whole[:end], EXPECTED)

    @pytest.mark.parametrize("kind", ["object", "float64", "U3", "complex64", "datetime64[s]", ">f4"])
    def test_other_element_types_are_not_written(self, name: str, kind: str) -> None:
        with pytest.raises(TensorsRefused, match="x is of"):
            format_of(name).write({"x": np.zeros(3, dtype=kind), "y": SMALL["y"]})


def test_there_is_no_other_format() -> None:
    assert set(formats.list_format_names()) == {"safetensors", "npz", "npy", "parquet", "jsonl"}
    with pytest.raises(Refused, match="there is jsonl"):
        format_of("pickle")


def refused(name: str, data: bytes, why: str, expected: Expected = EXPECTED) -> None:
    with pytest.raises(TensorsRefused, match=why):
        format_of(name).read(data, expected)


# npy and npz


def npy_of(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def npy_claiming(header: str, body: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def zip_of(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, body in members:
            archive.writestr(name, body)
    return file.getvalue()


X, Y = npy_of(SMALL["x"]), npy_of(SMALL["y"])


def test_numpys_own_files_are_read() -> None:
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, **SMALL)
        back = format_of("npz").read(file.getvalue(), EXPECTED)
        assert all((back[name] == SMALL[name]).all() for name in SMALL)
    columns = npy_of(np.asfortranarray(SMALL["x"]))
    assert (format_of("npy").read(columns, {"x": EXPECTED["x"]})["x"] == SMALL["x"]).all()


def test_a_pickled_object_is_not_read(tmp_path: Any) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return open, (str(tmp_path / "ran"), "w")  # type: ignore[return-value]

    pickled = npy_of(np.array([Bomb(), 1, 2], dtype=object))
    refused("npz", zip_of([("x.npy", X), ("y.npy", pickled)]), "pickled objects")
    refused("npy", pickled, "pickled objects", {"y": EXPECTED["y"]})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", "not float32"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "bytes"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", "no npy header"),
        ("{'descr': '>f4', 'fortran_order': False, 'shape': (3,)}", "not float32"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': __import__('os').abort()}", "no npy header"),
        ("(" * 5000, "no npy header"),
        ("{'descr': '<f4', 'shape': (3,)}", "no npy header"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}" + " " * 20_000, "longer than"),
    ],
)
def test_an_npy_header_that_lies_is_refused(header: str, why: str) -> None:
    refused("npy", npy_claiming(header), why, {"x": ((3,), "float32")})


def test_a_zip_bomb_is_not_unpacked() -> None:
    bomb = zip_of([("x.npy", X), ("y.npy", Y + bytes(50 * 2**20))])
    assert len(bomb) < 100_000
    refused("npz", bomb, "unpacks to")
    lied = bomb.replace(struct.pack("<I", len(Y) + 50 * 2**20), struct.pack("<I", len(Y)))
    refused("npz", lied, "no zip|bytes")


def test_members_too_many_twice_or_elsewhere_are_refused() -> None:
    refused("npz", zip_of([("x.npy", X), ("y.npy", Y), ("z.npy", Y)]), "unexpected: z")
    refused("npz", zip_of([("x.npy", X), ("../y.npy", Y)]), "missing or unexpected")
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = zip_of([("x.npy", X), ("y.npy", Y), ("y.npy", Y)])
    refused("npz", twice, "twice")
    refused("npz", zip_of([("x.npy", X), ("y", Y), ("y.npy", Y)]), "twice")


def test_encrypted_and_unheard_of_members_are_refused() -> None:
    whole = zip_of([("x.npy", X), ("y.npy", Y)], zipfile.ZIP_STORED)
    directory = whole.index(b"PK\x01\x02")
    encrypted = bytearray(whole)
    encrypted[directory + 8] |= 1
    refused("npz", bytes(encrypted), "encrypted")
    refused("npz", zip_of([("x.npy", X), ("y.npy", Y)], zipfile.ZIP_LZMA), "neither stored nor deflated")


def test_truth_values_are_zero_or_one() -> None:
    odd = npy_of(np.array([0, 1, 2], np.uint8)).replace(b"'|u1'", b"'|b1'")
    refused("npy", odd, "truth values", {"x": ((3,), "bool")})


# JSON lines


def lines(*rows: str) -> bytes:
    return "\n".join(rows).encode()


ROW = '{"x": [1, 2.5, 3, 4], "y": 0}'


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('{"x": [1, NaN, 3, 4], "y": 0}', "NaN"),
        ('{"x": [1, -Infinity, 3, 4], "y": 0}', "Infinity"),
        ('{"x": [1, 1e400, 3, 4], "y": 0}', "finite"),
        ('{"x": [1, 1e39, 3, 4], "y": 0}', "finite"),
        ('{"x": [1, 2, 3, 4], "y": 0.0}', "float where int64"),
        ('{"x": [1, 2, 3, 4], "y": true}', "bool where int64"),
        ('{"x": [1, 2, 3, true], "y": 0}', "bool where float32"),
        ('{"x": [1, 2, 3, "4"], "y": 0}', "str where float32"),
        ('{"x": [1, 2, 3, null], "y": 0}', "NoneType where float32"),
        ('{"x": [1, 2, 3, 4], "y": 9223372036854775808}', "no int64"),
        ('{"x": [1, 2, 3, 4], "y": ' + "9" * 5000 + "}", "bytes, where a row"),
        ('{"x": [1, 2, 3, ' + "9" * 400 + '], "y": 0}', "no float32"),
        ('{"x": [1, 2, 3], "y": 0}', "rows that are not"),
        ('{"x": [[1, 2, 3, 4]], "y": 0}', "rows that are not"),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + ', "y": 0}', "bytes, where a row"),
        ('{"x": [1, 2, 3, 4], "y": 0, "y": 1}', "twice"),
        ('{"x": [1, 2, 3, 4]}', "missing"),
        ("[1, 2]", "no object"),
        ("", "not JSON"),
        ('{"x": [1, 2, 3, 4], "y": 0} {}', "not JSON"),
    ],
)
def test_undeclared_row_is_refused(row: str, why: str) -> None:
    refused("jsonl", lines(ROW, row, ROW), why)


def test_a_deep_row_and_a_long_number_are_refused_where_a_row_may_be_long() -> None:
    wide: Expected = {"x": ((1, 2000), "float32")}
    for value in ("[" * 100_000 + "]" * 100_000, f"[{'9' * 5000}]"):
        refused("jsonl", lines(f'{{"x": {value}}}'), "not JSON", wide)


@given(st.integers(0, 3), st.integers(1, 4))
def test_an_honest_row_is_never_too_long(dimensions: int, size: int) -> None:
    """Of the numbers with the longest decimals, spaced as widely as anybody writes them."""
    shape = (1, *[size] * dimensions)
    made = np.full(shape, -1.1754943508222875e-38, np.float32)
    text = json.dumps({"x": made[0].tolist()}, indent=4).replace("\n", " ")
    found = format_of("jsonl").read(lines(text), {"x": (shape, "float32")})
    assert found["x"].tobytes() == made.tobytes()


def test_more_rows_than_declared_are_counted_before_they_are_parsed() -> None:
    refused("jsonl", lines(ROW, ROW, ROW, "{"), "4 rows")
    refused("jsonl", lines(ROW, ROW) + b"\n", "2 rows")
    refused("jsonl", lines(ROW, ROW, '{"x": "\xff"}').decode().encode("latin-1"), "line 3 is not JSON")


@pytest.mark.parametrize("value", ["256", "-1"])
def test_a_number_out_of_its_type_is_refused(value: str) -> None:
    refused("jsonl", lines(json.dumps({"x": int(value)})), "no uint8", {"x": ((1,), "uint8")})


# Parquet


def parquet_of(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def column(values: Any, kind: Any) -> bytes:
    return parquet_of(pa.table({"x": pa.array(values, kind)}))


ONE = {"x": ((3,), "int64")}


def test_others_parquet_is_read() -> None:
    lists = pa.array(SMALL["x"].tolist(), pa.list_(pa.float32()))
    table = pa.table({"y": SMALL["y"], "x": lists})
    for options in ({}, {"row_group_size": 2}, {"compression": "gzip"}, {"data_page_version": "2.0"}):
        back = format_of("parquet").read(parquet_of(table, **options), EXPECTED)
        assert all((back[name] == SMALL[name]).all() for name in SMALL)


class Secret(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int64(), "secret")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: Any, _serialized: bytes) -> "Secret":
        return cls()


@pytest.mark.parametrize(
    ("values", "kind", "why"),
    [
        ([1.0, 2.0, 3.0], pa.float64(), "x is double"),
        (["a", "b", "c"], pa.string(), "x is string"),
        ([b"a", b"b", b"c"], pa.binary(), "x is binary"),
        ([1, 2, 3], pa.decimal128(9, 2), "x is decimal"),
        ([1, 2, 3], pa.timestamp("s"), "x is timestamp"),
        ([1, 2, 3], pa.uint64(), "x is uint64"),
        ([[1], [2], [3]], pa.list_(pa.int64()), "x is list"),
        ([{"a": 1}] * 3, pa.struct({"a": pa.int64()}), "x is struct"),
        ([[(1, 2)]] * 3, pa.map_(pa.int64(), pa.int64()), "x is map"),
        ([1, None, 3], pa.int64(), "without a value"),
    ],
)
def test_columns_of_other_types_are_refused(values: Any, kind: Any, why: str) -> None:
    refused("parquet", column(values, kind), why, ONE)


def test_dictionaries_and_extension_types_are_refused() -> None:
    dictionary = pa.array(["a", "b", "a"]).dictionary_encode()
    refused("parquet", parquet_of(pa.table({"x": dictionary})), "x is dictionary", ONE)
    secret = pa.ExtensionArray.from_storage(Secret(), pa.array([1, 2, 3]))
    written = parquet_of(pa.table({"x": secret}))
    assert format_of("parquet").read(written, ONE)["x"].tolist() == [1, 2, 3], "numbers to whom knows no such type"
    pa.register_extension_type(Secret())
    try:
        refused("parquet", written, "x is extension", ONE)
    finally:
        pa.unregister_extension_type("secret")


def test_nesting_is_refused() -> None:
    deep: Any = pa.int64()
    value: Any = 1
    for _ in range(40):
        deep, value = pa.list_(deep), [value]
    refused("parquet", column([value] * 3, deep), "x is list", {"x": ((3, 1), "int64")})


def test_rows_and_values_beyond_what_was_declared_are_not_read() -> None:
    bomb = parquet_of(pa.table({"x": np.zeros(20_000_000, np.int64)}))
    assert len(bomb) < 100_000
    refused("parquet", bomb, "20000000 rows", ONE)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 5_000_000], pa.int32()), pa.array(np.zeros(5_000_000, np.int64))
    )
    refused("parquet", parquet_of(pa.table({"x": lists})), "5000000 values", {"x": ((3, 1), "int64")})


def test_ragged_and_missing_list_values_are_refused() -> None:
    expected: Expected = {"x": ((3, 2), "int64")}
    refused("parquet", column([[1], [2, 3, 4], [5, 6]], pa.list_(pa.int64())), "not 2", expected)
    refused("parquet", column([[1, 2], [3, None], [5, 6]], pa.list_(pa.int64())), "missing values", expected)
    refused("parquet", column([[1, 2, 3, 4], None, [5]], pa.list_(pa.int64())), "without a value", expected)
    refused("parquet", column([[1, 2, 3], [4], []], pa.list_(pa.int64())), "values", expected)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1, 2, 3])] * 2, names=["x", "x"])
    refused("parquet", parquet_of(twice), "twice", ONE)
