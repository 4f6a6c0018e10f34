"""A tensor file is exactly its declaration, or it is refused; nothing in it is ever executed."""

import io
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import load as reference_load

from graphdoc.errors import TensorsRefused
from graphdoc.tensors import pack_tensors, unpack_tensors

DTYPES = ["float32", "int64", "int32", "uint8", "bool"]
names = st.from_regex(r"[a-z_][a-z0-9_.]{0,12}", fullmatch=True).filter(lambda name: name != "__metadata__")
shapes = arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: arrays_of.arrays(dtype, shapes))


def file(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@given(st.dictionaries(names, arrays, max_size=5))
def test_packed_tensors_are_unpacked(tensors: dict[str, np.ndarray]) -> None:
    data = pack_tensors(tensors)
    again = unpack_tensors(data, {name: (array.shape, array.dtype.name) for name, array in tensors.items()})
    assert list(again) == sorted(tensors)
    for name, array in tensors.items():
        assert again[name].dtype == array.dtype
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.tobytes()
    assert set(reference_load(data)) == set(tensors)


def test_one_set_of_arrays_has_one_sequence_of_bytes() -> None:
    one = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones((), np.int64), "c": np.zeros(3, bool)}
    other = {name: np.array(one[name], order="F") for name in ("c", "b", "a")}
    every_second = np.zeros((4, 3), np.float32)
    every_second[::2] = one["b"]
    assert pack_tensors(one) == pack_tensors(other) == pack_tensors({**one, "b": every_second[::2]})
    assert unpack_tensors(pack_tensors(other))["b"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("odd", range(1, 4))
def test_an_array_lies_where_its_element_type_may(odd: int) -> None:
    header = json.dumps({"a": entry()}).encode()
    header += b" " * ((odd - len(header)) % 8)
    found = unpack_tensors(memoryview(file(header, np.float32(3).tobytes())))["a"]
    assert found.flags.aligned
    assert found.tolist() == [3]


def test_the_bytes_are_pinned() -> None:
    assert pack_tensors({"w": np.array([1.0, -2.0], np.float32)}).hex() == (
        "38000000000000007b2277223a7b226474797065223a22463332222c227368617065223a5b325d2c22646174615f6f66667365747322"
        "3a5b302c385d7d7d20200000803f000000c0"
    )


def saved(**contents: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **contents)  # type: ignore[arg-type]
    return buffer.getvalue()


class Bomb:
    """Records that it was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


FOUR = b"\x00\x00\x80\x3f"
HOSTILE = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a header longer than the file": (2**40).to_bytes(8, "little") + b"{}",
    "a header longer than any file": (2**64 - 1).to_bytes(8, "little") + b"{}",
    "not JSON": file(b"{"),
    "not UTF-8": file(b'{"\xff":1}'),
    "a list": file([]),
    "deep": file(b"[" * 100_000),
    "a key twice": file(b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}", FOUR),
    "metadata": file({"__metadata__": {"a": "b"}, "a": entry()}, FOUR),
    "a name with a slash": file({"../a": entry()}, FOUR),
    "an entry that is a list": file({"a": []}, FOUR),
    "an entry with more": file({"a": {**entry(), "code": "x"}}, FOUR),
    "another type": file({"a": entry("F64", (1,), (0, 8))}, FOUR * 2),
    "a type that is a list": file({"a": {**entry(), "dtype": ["F32"]}}, FOUR),
    "a negative dimension": file({"a": entry(shape=(-1,))}, FOUR),
    "a fractional dimension": file({"a": entry(shape=(1.0,))}, FOUR),
    "a dimension that is true": file({"a": entry(shape=(True,))}, FOUR),
    "an overflowing shape": file({"a": entry(shape=(2**40, 2**40))}, FOUR),
    "many dimensions": file({"a": entry(shape=(1,) * 20)}, FOUR),
    "offsets past the end": file({"a": entry(offsets=(0, 8))}, FOUR),
    "offsets backwards": file({"a": entry(offsets=(4, 0))}, FOUR),
    "negative offsets": file({"a": entry(offsets=(-4, 0))}, FOUR),
    "overlap": file({"a": entry(), "b": entry()}, FOUR),
    "a hole": file({"a": entry(offsets=(4, 8))}, FOUR * 2),
    "bytes after": file({"a": entry()}, FOUR * 2),
    "bytes missing": file({"a": entry()}, FOUR[:3]),
    "a truth value of two": file({"a": entry("BOOL", (1,), (0, 1))}, b"\x02"),
    "an npz": saved(a=np.ones(3)),
    "an npz with a pickle": saved(a=np.array([Bomb()], dtype=object)),
    "a pickle": pickle.dumps(Bomb()),
    "a pickle as header": file(pickle.dumps(Bomb())),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(TensorsRefused):
        unpack_tensors(data)


def test_exactly_the_expected_arrays() -> None:
    data = pack_tensors({"a": np.ones(3, np.float32)})
    assert unpack_tensors(data, {"a": ((3,), "float32")})["a"].tolist() == [1, 1, 1]
    for expected in (
        {},
        {"b": ((3,), "float32")},
        {"a": ((4,), "float32")},
        {"a": ((3,), "int32")},
        {"a": ((3,), "float32"), "b": ((3,), "float32")},
    ):
        with pytest.raises(TensorsRefused):
            unpack_tensors(data, expected)


@pytest.mark.parametrize("array", [np.ones(2), np.ones(2, ">f4"), np.array(["a"]), np.array([None])])
def test_other_types_are_not_packed(array: np.ndarray) -> None:
    with pytest.raises(TensorsRefused):
        pack_tensors({"a": array})


@given(data=st.binary(max_size=60), place=st.integers(0, 120))
def test_bytes_anywhere_are_read_or_refused(data: bytes, place: int) -> None:
    honest = pack_tensors({"a": np.ones((2, 3), np.float32), "b": np.zeros(4, bool)})
    try:
        tensors = unpack_tensors(honest[:place] + data + honest[place + len(data) :])
    except TensorsRefused:
        return
    assert all(array.dtype.name in DTYPES for array in tensors.values())
