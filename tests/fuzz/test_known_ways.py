"""Each known way to make torch, numpy, zip, Arrow, sympy or JSON run code or explode, tried on our readers."""

import io
import json
import pickle
import pkgutil
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pydantic import ValidationError

from fuzz import thrift
from fuzz.zips import STORED, Member, joined
from gradmarket.market import manifest
from gradmarket.market.errors import DocumentRefused, JobRefused, Refused, TensorsRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Manifest
from gradmarket.runner import Reader, Runner, RunnerSettings
from graphdoc import formats, plugins, tensors
from graphdoc.document import schema
from graphdoc.formats import _thrift, format_of
from graphdoc.tensors import Expected
from tests import source_tree
from tests.handmade import encoded, linear, node, value, with_nodes
from tests.lanes import FULL
from tests.test_layers import against_safety

ONE: Final[Expected] = {"x": ((3,), "int64")}
THREE: Final = np.arange(3)
READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "document": schema.parse_document,
    "safetensors": tensors.unpack_tensors,
    "manifest": manifest.parse_manifest,
    **{name: lambda data, name=name: format_of(name).read(data, ONE) for name in formats.list_format_names()},  # type: ignore[misc]
}


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.path), "w")


def array_file(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def zipped(**bodies: bytes) -> bytes:
    return joined([Member(name.replace("__", ".").encode(), body) for name, body in bodies.items()])


# Pickles


@pytest.mark.parametrize("reader", READERS)
def test_a_pickle_under_any_name_is_refused_and_not_run(reader: str, tmp_path: Path) -> None:
    bomb = Bomb(tmp_path / "ran")
    objects = array_file(np.array([bomb] * 3, dtype=object))
    weights = zipped(**{"archive/data__pkl": pickle.dumps(bomb), "archive/version": b"3"})
    header = len(pickle.dumps(bomb)).to_bytes(8, "little") + pickle.dumps(bomb)
    for hostile in (pickle.dumps(bomb), objects, zipped(x__npy=objects), weights, header):
        with pytest.raises(Refused):
            READERS[reader](hostile)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("reader", READERS)
def test_an_exported_program_is_refused(reader: str, tmp_path: Path) -> None:
    """torch.export.load runs code through sample inputs, weights, size expressions and guards (torch 2.13)."""
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    model = json.dumps({"guards_code": ["__import__('os').abort()"], "expr_str": "exec('1/0')"}).encode()
    archive = {"a/models/model__json": model, "a/data/sample_inputs/model__pt": bomb, "a/archive_format": b"pt2"}
    with pytest.raises(Refused):
        READERS[reader](zipped(**archive))
    assert not (tmp_path / "ran").exists()


@FULL
def test_nothing_of_ours_can_load_a_pickle_or_an_exported_program() -> None:
    sources = source_tree.load_modules()
    assert [found for module in sources.values() for found in against_safety(module)] == []
    assert not any("sympy" in module.outside for module in sources.values())


# Sizes that are expressions


@pytest.mark.parametrize("size", ["s0*2", "Symbol('x')", "__import__('os').abort()", "2**2**40", "rows*rows", "3"])
def test_a_size_is_a_number_and_never_an_expression(size: str) -> None:
    for place, shape in ((0, [1, size]), (1, ["rows", size])):
        document = linear()
        document["inputs"][place]["shape"] = shape
        with pytest.raises(DocumentRefused):
            schema.parse_document(encoded(document))
    with pytest.raises(DocumentRefused):
        schema.parse_document(encoded(with_nodes(node("view.default", [value(1), [size]], 3))))


def test_an_integer_squared_twenty_five_times_stops_at_the_cap(runner: Runner) -> None:
    size = node("integer.size", [value(1), 0], 3)
    squares = [node("integer.mul", [value(3 + number)] * 2, 4 + number) for number in range(25)]
    runner.load(encoded(with_nodes(size, *squares)))
    with pytest.raises(DocumentRefused, match="an integer beyond"):
        runner.bound(1000)
    for written in (2**40 + 1, -(2**40) - 1, 10**4000):
        with pytest.raises(DocumentRefused, match="not an allowed integer"):
            schema.parse_document(encoded(with_nodes(node("integer.add", [written, 0], 3))))


def test_an_operator_s_failed_assertion_is_a_refusal(runner: Runner) -> None:
    """torch's operators in Python assert their arguments' shapes, which once ended the child."""
    document = linear()
    document["inputs"][1]["shape"], document["inputs"][2]["dtype"] = ["rows", 3, 8, 8], "int64"
    document["nodes"] = [node("nll_loss.default", [value(1), value(2), None, 1, -100], 3)]
    runner.load(encoded({**document, "loss": 3}))
    before = runner.pid
    with pytest.raises(DocumentRefused, match="1 or 2 dimensions"):
        runner.bound(2)
    assert runner.pid == before


# Zips


def test_zips_in_zips_are_not_opened() -> None:
    inner = zipped(x__npy=bytes(2**20))
    for _ in range(5):
        inner = zipped(**{f"x{number}__zip": inner for number in range(4)})
    with pytest.raises(TensorsRefused, match="missing or unexpected"):
        format_of("npz").read(inner, ONE)
    with pytest.raises(TensorsRefused, match="no npy array"):
        format_of("npz").read(zipped(x__npy=zipped(x__npy=array_file(THREE))), ONE)


def test_members_that_overlap_are_refused() -> None:
    """One body under many names (Fifield 2019): each unpacks to exactly its declaration, or nothing is read."""
    members = [Member(f"{name}.npy".encode(), array_file(np.zeros(10**5, np.int64))) for name in "xyz"]
    for member in members[1:]:
        member.packed, member.offset = b"", 0
    with pytest.raises(TensorsRefused):
        format_of("npz").read(joined(members), dict.fromkeys("xyz", ((10**5,), "int64")))


@pytest.mark.parametrize("name", ["../x.npy", "/x.npy", "..\\x.npy", "a/../x.npy", "C:x.npy", "x.npy/"])
def test_a_member_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(TensorsRefused):
        format_of("npz").read(joined([Member(name.encode(), array_file(THREE))]), ONE)


def test_records_that_lead_beyond_any_file_are_refused() -> None:
    for extra in (b"\x01\x00\x18\x00" + b"\xff" * 24, b"\x01\x00\x10\x00" + b"\x7f" * 16, b"\x01\x00\x18\x00"):
        member = Member(b"x.npy", array_file(THREE), STORED)
        member.extra, member.size, member.packed_size, member.offset = extra, 2**32 - 1, 2**32 - 1, 2**32 - 1
        with pytest.raises(TensorsRefused):
            format_of("npz").read(joined([member]), ONE)


@pytest.mark.parametrize("name", formats.list_format_names())
def test_declared_sizes_beyond_any_machine_are_refused(name: str) -> None:
    """The manifest is a stranger's, too."""
    data = format_of(name).write({"x": THREE, "y": THREE})
    for shape in ((3, 2**31), (3, *[2**31] * 7), (2**31,) * 8):
        with pytest.raises(TensorsRefused):
            format_of(name).read(data, {"x": (shape, "int64"), "y": ((shape[0],), "int64")})


def test_records_larger_than_a_c_int_are_refused() -> None:
    """numpy counts a record's bytes in a C int, which turns over without an error."""
    for sizes in ((2**29, 2**29), (2**30, 2**28), (2**31 - 1, 1)):
        expected = {name: ((1, size), "int32") for name, size in zip("xy", sizes, strict=True)}
        with pytest.raises(TensorsRefused, match="larger than numpy's records"):
            format_of("npy").read(array_file(THREE), expected)


# Parquet


def parquet(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def footer_of(data: bytes) -> tuple[bytes, list[thrift.Field]]:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:start], thrift.read_struct(io.BytesIO(data[start:-8]))


def with_footer(pages: bytes, footer: list[thrift.Field]) -> bytes:
    text = thrift.written(footer)
    return pages + text + len(text).to_bytes(4, "little") + b"PAR1"


def inside(fields: list[thrift.Field], *numbers: int) -> thrift.Field:
    """The field at this path; of lists the first element."""
    found = next(field for field in fields if field.number == numbers[0])
    while found.kind == thrift.LIST and isinstance(found.value[0].value, list):
        found = found.value[0]
    return inside(found.value, *numbers[1:]) if numbers[1:] else found


@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd", "brotli", "lz4"])
def test_pages_that_inflate_are_not_unpacked(compression: str) -> None:
    """Three values are claimed everywhere; the page itself unpacks to 32 MB."""
    zeros = pa.table({"x": np.zeros(4_000_000, np.int64)})
    whole = {"row_group_size": 10**8, "data_page_size": 2**30, "max_rows_per_page": 10**8, "use_dictionary": False}
    pages, footer = footer_of(parquet(zeros, compression=compression, **whole))
    body = io.BytesIO(pages[4:])
    header = thrift.read_struct(body)
    for place in ((3,), (4, 3), (4, 1, 3, 5)):
        inside(footer, *place).value = 3
    inside(header, 5, 1).value = 3
    page = thrift.written(header) + body.read()
    inside(footer, 4, 1, 3, 7).value = len(page)
    assert len(page) < 2**21
    with pytest.raises(TensorsRefused, match=r"a page of 3 values unpacks to 32\d{6} bytes"):
        format_of("parquet").read(with_footer(pages[:4] + page, footer), ONE)


def test_row_groups_and_rows_that_are_only_claimed_are_refused() -> None:
    pages, footer = footer_of(parquet(pa.table({"x": THREE})))
    groups = next(field for field in footer if field.number == 4)
    for count, rows in ((10_000, 3), (1, 2**62), (0, 3)):
        groups.value[:] = groups.value[:1] * count if count else []
        inside(footer, 3).value = rows
        with pytest.raises(TensorsRefused):
            format_of("parquet").read(with_footer(pages, footer), {"x": ((min(rows, 3),), "int64")})


def test_a_long_list_that_a_footer_does_not_need_is_read_past_and_not_kept() -> None:
    """Lists that grow by a stranger's word took seconds in a heap that many had used before (parquet/5566)."""
    count = 2**18
    body = bytes([0x19, 0xF5, 0x80, 0x80, 0x10]) + bytes(count) + bytes([0x15, 0x06, 0])
    tracemalloc.start()
    try:
        read = _thrift.Cursor(body, 0, len(body)).struct()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert _thrift.find_struct_field(read, 2, _thrift.I32) == 3, "what comes after the list is read"
    assert most < count
    with pytest.raises(TensorsRefused, match="field 1 of a header is no list of structs"):
        _thrift.list_struct_elements(read, 1)


def test_statistics_that_contradict_each_other_do_not_end_the_process() -> None:
    """Arrow 26.0 ends the process as it evaluates them: here a child of the runner, so that this test would fail."""
    lists = pa.array([[1], [2], [3]], pa.list_(pa.int64()))
    pages, footer = footer_of(parquet(pa.table({"x": lists})))
    sizes = inside(footer, 4, 1, 3, 16)
    for field in sizes.value:
        if field.kind == thrift.LIST:
            field.value.append(field.value[0])
    with Reader(RunnerSettings(memory_bytes=2**29, seconds=60.0)) as reader:
        with suppress(TensorsRefused):
            reader.read("parquet", with_footer(pages, footer), {"x": ((3, 1), "int64")})
        before = reader.pid
        assert reader.read("parquet", parquet(pa.table({"x": lists})), {"x": ((3, 1), "int64")})["x"].tolist() == [
            [1], [2], [3],
        ]  # fmt: skip
        assert reader.pid == before is not None


def test_an_extension_types_own_bytes_are_not_unpickled(tmp_path: Path) -> None:
    """CVE-2023-47248: pyarrow before 14.0.1 unpickled the metadata of `arrow.py_extension_type`."""
    told = {"ARROW:extension:name": "arrow.py_extension_type",
            "ARROW:extension:metadata": pickle.dumps(Bomb(tmp_path / "ran"), protocol=0)}  # fmt: skip
    table = pa.Table.from_arrays([pa.array(THREE)], schema=pa.schema([pa.field("x", pa.int64(), metadata=told)]))
    with suppress(TensorsRefused):
        assert format_of("parquet").read(parquet(table), ONE)["x"].tolist() == [0, 1, 2]
    assert not (tmp_path / "ran").exists()


# JSON


def placed(token: bytes) -> dict[str, bytes]:
    """The token as the value of something, in each format that is JSON."""
    header = b'{"x":' + token + b"}"
    return {
        "document": encoded(linear()).replace(b'"loss":4', b'"loss":' + token),
        "safetensors": len(header).to_bytes(8, "little") + header,
        "jsonl": (b'{"x":' + token + b"}\n") * 3,
        "manifest": b'{"inputs":{"x":{"dtype":"int64"}},"partitions":' + token + b"}",
    }


TOKENS: Final = {
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a key twice": b'{"a":1,"a":1}',
    "a huge integer": b"9" * 100_000,
    "a huge exponent": b"1e999999999",
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "half a surrogate": b'"\\ud800"',
    "a NUL": b'"\\u0000"',
    "not UTF-8": b'"\xff"',
}


@pytest.mark.parametrize("reader", ["document", "safetensors", "jsonl", "manifest"])
@pytest.mark.parametrize("token", TOKENS)
def test_json_that_explodes_or_is_none_is_refused(reader: str, token: str) -> None:
    with pytest.raises(Refused):
        READERS[reader](placed(TOKENS[token])[reader])


@pytest.mark.parametrize("reader", ["document", "safetensors", "jsonl", "manifest"])
def test_a_byte_order_mark_and_other_encodings_are_refused(reader: str) -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        with pytest.raises(Refused):
            READERS[reader](placed(b"1")[reader].decode("latin-1").encode(encoding))


# Numbers that JSON has no word for


@pytest.mark.parametrize("word", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_job_refuses_infinite_numbers_in_its_plug_ins_settings(word: str) -> None:
    """Written down it would be null, so the publication would be another one than was posted."""
    job = (
        '{"name":"a","model":{"architecture":"mlp","arguments":%s},"data":{"ready":"digits"},"step":{"rows":1},'
        '"optimizer":{"lr":0.1},"aggregator":%s,"rounds":1,"price":"1"}'
    )
    assert JobSpec.model_validate_json(job % ('{"hidden":[8]}', '{"name":"trimmed_mean","trim":1}')).rounds == 1
    for arguments, trim in (('{"hidden":[' + word + "]}", "1"), ('{"hidden":[8]}', word)):
        with pytest.raises(ValidationError, match="infinite"):
            JobSpec.model_validate_json(job % (arguments, '{"name":"trimmed_mean","trim":' + trim + "}"))


# Manifests


def manifest_of(partitions: list[Any]) -> bytes:
    return json.dumps({"inputs": {"x": {"dtype": "float32"}}, "partitions": partitions}).encode()


def test_a_manifest_is_given_up_at_its_first_unfit_partition() -> None:
    """A million unfit partitions once took a minute to put into words."""
    with pytest.raises(ValidationError) as found:
        Manifest.model_validate_json(manifest_of([{}] * 1000))
    assert found.value.error_count() < 10
    with pytest.raises(JobRefused, match=r"data\.manifest\.partitions\.0\.name: Field required"):
        manifest.parse_manifest(manifest_of([{}] * 1000))


def test_the_formats_folder_is_not_looked_into_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = "blake3:" + "ab" * 32
    partition = {"link": "/v1/blobs/x", "digest": digest, "bytes": 1, "rows": 1, "format": "npz"}
    plugins.list_plugin_names(formats.__name__)
    monkeypatch.setattr(pkgutil, "iter_modules", lambda *_: pytest.fail("looked again"))
    found = manifest.parse_manifest(manifest_of([{**partition, "name": str(number)} for number in range(100)]))
    assert len(found.partitions) == 100
