"""A researcher's files cut into partitions: every source, the same bytes again, and refusals by name."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from safetensors.torch import save_file
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.data import sources
from gradmarket.data.inputs import select_inputs
from gradmarket.data.pack import Cut, Packed, pack_dataset
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.manifest import Labelled, Manifest
from gradmarket.market.step import GradientStep
from gradmarket.runner.architectures import publish_ready
from gradmarket.runner.steps import compute_step
from graphdoc import formats
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.formats import format_of

X = np.arange(40, dtype=np.float64).reshape(10, 4)
Y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "label": Y})


def hugging_face(folder: Path) -> Path:
    """Writes the files of `datasets.Dataset.save_to_disk`, in two shards."""
    folder.mkdir()
    lists = pa.table({"x": pa.array(X.tolist()), "y": Y})
    names = [f"data-{number:05d}-of-00002.arrow" for number in range(2)]
    for number, name in enumerate(names):
        with pa.ipc.new_stream(folder / name, lists.schema) as writer:
            writer.write_table(lists.slice(5 * number, 5))
    state = {"_data_files": [{"filename": name} for name in names], "_indices_data_files": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def written(folder: Path, kind: str) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "npz":
        np.savez(path, x=X, y=Y)
    elif kind == "safetensors":
        save_file({"x": torch.from_numpy(X), "y": torch.from_numpy(Y)}, path)
    elif kind == "folder":
        path.mkdir()
        np.save(path / "x.npy", X)
        np.save(path / "y.npy", Y)
    elif kind == "npy":
        records = np.zeros(10, [("x", "<f8", (4,)), ("y", "<i8")])
        records["x"], records["y"] = X, Y
        np.save(path, records)
    elif kind == "saved":
        hugging_face(path)
    elif kind == "parquet":
        parquet.write_table(pa.table({"x": pa.array(X.tolist()), "y": Y}), path)
    else:
        path.write_text("".join(json.dumps({"x": x, "y": int(y)}) + "\n" for x, y in zip(X.tolist(), Y, strict=True)))
    return path


def unpacked(packed: Packed) -> dict[str, dict[str, np.ndarray]]:
    manifest = packed.manifest
    return {
        part.name: format_of(part.format).read(packed.files[part.name], manifest.batch(part.rows))
        for part in manifest.partitions
    }


@pytest.mark.parametrize("kind", ["npz", "npy", "folder", "safetensors", "parquet", "jsonl", "saved"])
def test_every_source_gives_the_same_partitions(tmp_path: Path, kind: str) -> None:
    packed = pack_dataset(select_inputs(sources.load_columns(written(tmp_path, kind)).arrays), Cut(4))
    straight = pack_dataset(select_inputs({"x": X, "y": Y}), Cut(4))
    assert packed.files == straight.files
    assert packed.digest == straight.digest


def test_a_table_becomes_x_and_y_by_its_target(tmp_path: Path) -> None:
    csv.write_csv(TABLE, tmp_path / "t.csv")
    arrays = select_inputs(sources.load_columns(tmp_path / "t.csv").arrays, target="label")
    assert {name: (array.shape, array.dtype.name) for name, array in arrays.items()} == {
        "x": ((10, 2), "float32"),
        "y": ((10,), "int64"),
    }
    named = select_inputs(sources.load_columns(tmp_path / "t.csv").arrays, {"x": ["b"], "weight": ["a"]}, "label")
    assert set(named) == {"x", "weight", "y"}
    assert named["x"].tolist() == X[:, 1].tolist()


@given(
    total=st.integers(2, 60),
    rows=st.integers(1, 30),
    held_out=st.sampled_from([0.0, 0.2, 0.5]),
    seed=st.integers(0, 2**63 - 1),
    kind=st.sampled_from(formats.list_format_names()),
)
def test_every_row_is_in_one_partition(total: int, rows: int, held_out: float, seed: int, kind: str) -> None:
    arrays = {"x": np.arange(total, dtype=np.float32), "y": np.arange(total)}
    if held_out and not 0 < round(total * held_out) < total:
        held_out = 0.0
    cut = Cut(rows, kind, held_out, seed)
    packed = pack_dataset(arrays, cut)
    parts = unpacked(packed)
    assert sorted(np.concatenate([part["y"] for part in parts.values()]).tolist()) == list(range(total))
    assert all((part["x"] == part["y"]).all() for part in parts.values())
    assert ("test" in parts) == bool(held_out)
    sizes = [part.rows for part in packed.manifest.partitions if part.name != "test"]
    assert max(sizes) <= rows
    assert max(sizes) - min(sizes) <= 1
    assert pack_dataset(arrays, cut).digest == packed.digest


def test_the_manifest_has_the_row_s_shape_and_the_number_of_classes() -> None:
    manifest = pack_dataset(select_inputs({"x": X, "y": Y}), Cut(5)).manifest
    assert manifest.labelled == Labelled(dtype="float32", shape=(4,), classes=3)
    assert pack_dataset(select_inputs({"x": X, "y": Y - 1}), Cut(5)).manifest.labelled is None


def test_links_lead_to_the_requester_or_to_a_static_server() -> None:
    arrays = select_inputs({"x": X, "y": Y})
    for partition in pack_dataset(arrays, Cut(5)).manifest.partitions:
        assert partition.link == f"/v1/blobs/{partition.digest}"
    links = [part.link for part in pack_dataset(arrays, Cut(5, base_url="https://d.example/set/")).manifest.partitions]
    assert links == ["https://d.example/set/train-0.safetensors", "https://d.example/set/train-1.safetensors"]


@pytest.mark.parametrize(
    ("arrays", "options", "why"),
    [
        ({"x": X, "y": Y[:9]}, {}, "differ in their number of rows"),
        ({"x": X[:0], "y": Y[:0]}, {}, "number of rows"),
        ({"x": np.array(["a", "b"])}, {}, "turn it into numbers"),
        ({"x": X.astype(object)}, {}, "turn it into numbers"),
        ({"x": np.array([2**63], np.uint64)}, {}, "do not fit int64"),
        ({"x": X}, {"target": "label"}, "no column label; the columns are x"),
        ({"y": Y}, {"target": "y"}, "needs a column"),
    ],
)
def test_arrays_that_are_no_dataset_are_refused(arrays: Any, options: Any, why: str) -> None:
    with pytest.raises(Refused, match=why):
        select_inputs(arrays, **options)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([["a"], ["b"]]), "'c' is string"),
        (pa.array([1, None]), "missing values"),
        (pa.array([[1], [1, 2]]), "different lengths"),
        (pa.array([{"a": 1}] * 2), "'c' is struct"),
        (pa.array([1, 2], pa.timestamp("s")), "'c' is timestamp"),
    ],
)
def test_a_column_that_is_no_number_is_named(tmp_path: Path, column: Any, why: str) -> None:
    parquet.write_table(pa.table({"c": column}), tmp_path / "t.parquet")
    with pytest.raises(Refused, match=why):
        sources.load_columns(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (np.arange(2**24, 2**24 + 10), "column a has 16777217, which float32 rounds to 16777216"),
        (np.arange(10) + 1.7e9, "column a has 1700000001.0, which float32 rounds to 1700000000"),
        (np.arange(10) / 4 + 1.7e9, "which float32 rounds"),
    ],
)
def test_columns_that_would_collide_side_by_side_are_refused_by_name(column: np.ndarray, why: str) -> None:
    arrays = {"a": column, "b": np.arange(10) / 7, "label": np.arange(10) % 3}
    with pytest.raises(Refused, match=why):
        select_inputs(arrays, target="label")
    kept = select_inputs({**arrays, "a": np.arange(2**24, 2**24 + 10)}, {"x": ["b"], "a": ["a"]}, "label")
    assert len(np.unique(kept["a"])) == 10


def test_an_index_is_no_feature(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",a,label\n0,0.5,1\n1,0.25,0\n")
    assert list(sources.load_columns(tmp_path / "t.csv").arrays) == ["a", "label"]
    (tmp_path / "t.csv").write_text(",a,label\n7,0.5,1\n9,0.25,0\n")
    with pytest.raises(Refused, match="the first column has no name"):
        sources.load_columns(tmp_path / "t.csv")
    table = pa.table({"a": [0.5], "__index_level_0__": [3]})
    told = {"pandas": json.dumps({"index_columns": ["__index_level_0__"]})}
    parquet.write_table(table.replace_schema_metadata(told), tmp_path / "t.parquet")
    assert list(sources.load_columns(tmp_path / "t.parquet").arrays) == ["a"]


@pytest.mark.parametrize(
    "told",
    [b"", b"{", b"[]", b"7", b'"a"', b"null", b"\xff\xfe\xff", b"[" * 100_000, b'{"index_columns": 7}',
     b'{"index_columns": null}', b'{"index_columns": {"a": 1}}', b'{"index_columns": "a"}',
     b'{"index_columns": [[], {}]}'],
    ids=range(13),
)  # fmt: skip
def test_metadata_that_pandas_did_not_write_names_no_index(tmp_path: Path, told: bytes) -> None:
    table = pa.table({"a": [0.5]}).replace_schema_metadata({b"pandas": told})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert list(sources.load_columns(tmp_path / "t.parquet").arrays) == ["a"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.5,1\n0.25,0\n", "the first row holds numbers"),
        ("a,a\n1,2\n", "two columns are named 'a'"),
        ("a,b\n12345678901234567890,1\n", "column 'a' has whole numbers beyond int64"),
    ],
)
def test_a_csv_file_that_would_lose_something_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "T.CSV").write_text(text)
    with pytest.raises(Refused, match=why):
        sources.load_columns(tmp_path / "T.CSV")


def test_a_column_of_tensors_keeps_its_shape(tmp_path: Path) -> None:
    images = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    parquet.write_table(pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(images)}), tmp_path / "t.parquet")
    assert (sources.load_columns(tmp_path / "t.parquet").arrays["x"] == images).all()


def test_archives_that_are_none_are_refused_in_a_sentence(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    np.savez(tmp_path / "empty.npz")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("readme.txt", "no array")
    for name, why in (("cut", "cut short"), ("empty", "it has no array"), ("text", "'readme.txt', which is no array")):
        with pytest.raises(Refused, match=why):
            select_inputs(sources.load_columns(tmp_path / f"{name}.npz").arrays)


def test_bfloat16_is_widened_and_fp8_is_refused_by_name(tmp_path: Path) -> None:
    numbers = torch.randn(6, 4, dtype=torch.bfloat16)
    save_file({"x": numbers, "y": torch.arange(6)}, tmp_path / "t.safetensors")
    found = sources.load_columns(tmp_path / "t.safetensors").arrays
    assert (found["x"] == numbers.float().numpy()).all()
    assert found["y"].tolist() == list(range(6))
    save_file({"x": numbers.to(torch.float8_e4m3fn)}, tmp_path / "t.safetensors")
    with pytest.raises(Refused, match="x is of F8_E4M3: save it as float32"):
        sources.load_columns(tmp_path / "t.safetensors")


def test_labels_of_one_byte_have_classes_and_given_classes_stand() -> None:
    arrays = {"x": np.zeros((6, 4, 4), np.uint8), "y": (np.arange(6) % 3).astype(np.uint8)}
    told = pack_dataset(select_inputs(arrays), Cut(5)).manifest.labelled
    assert told == Labelled(dtype="uint8", shape=(4, 4), classes=3)
    given = pack_dataset(select_inputs(arrays), Cut(5, classes=10)).manifest.labelled
    assert given is not None
    assert given.classes == 10


def test_a_ready_model_reads_pixels_of_one_byte_as_numbers_from_0_to_1() -> None:
    """The same parameters on the same pixels: the document of bytes gives the loss of the one of numbers."""
    both = [
        publish_ready("mlp", {"hidden": [8]}, Labelled(dtype=kind, shape=(4, 4), classes=3), 1, "fp32")
        for kind in ("uint8", "float32")
    ]
    pixels = np.arange(0, 240, 5, dtype=np.uint8).reshape(3, 4, 4)
    losses = []
    for made, x in zip(both, (pixels, (pixels / 255).astype(np.float32)), strict=True):
        program = Program(parse_document(made.document))
        answer = compute_step(program, made.parameters, {"x": x, "y": np.arange(3)}, bytes(32), GradientStep(rows=3))
        losses.append(float(answer["loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_sources_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        sources.load_columns(tmp_path / "nowhere.npz")
    (tmp_path / "a.pt").write_bytes(b"")
    with pytest.raises(Refused, match="is not one of"):
        sources.load_columns(tmp_path / "a.pt")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(Refused, match="cannot be read"):
        sources.load_columns(tmp_path / "o.npy")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(Refused, match="several splits"):
        sources.load_columns(tmp_path)


def test_the_command_writes_the_same_folder_twice(tmp_path: Path) -> None:
    source = written(tmp_path, "npz")
    told = []
    for name in ("one", "two"):
        options = ["--rows-per-partition", "4", "--held-out", "0.2", "--format", "parquet", "-o", str(tmp_path / name)]
        done = CliRunner().invoke(app, ["data", "pack", str(source), *options, "--json"])
        assert done.exit_code == 0, done.stderr
        told.append(json.loads(done.stdout)["manifest"])
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert told[0] == told[1]
    assert first == second
    assert set(first) == {"manifest.json", "test.parquet", "train-0.parquet", "train-1.parquet"}
    assert Manifest.model_validate_json(first["manifest.json"]).named("test").rows == 2


def test_the_command_names_the_wrong_option(tmp_path: Path) -> None:
    source = written(tmp_path, "npz")
    for options, why in (
        (["--format", "pickle"], "there is jsonl"),
        (["--input", "x"], "NAME=COLUMN"),
        (["--held-out", "0.01"], "leaves none"),
    ):
        done = CliRunner().invoke(
            app, ["data", "pack", str(source), "--rows-per-partition", "4", "-o", str(tmp_path / "o"), *options]
        )
        assert done.exit_code == 2
        assert why in done.stderr
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_a_number_that_is_not_finite_is_refused_by_file_and_row(tmp_path: Path, bad: float) -> None:
    x = X.copy()
    x[6, 2] = bad
    np.savez(tmp_path / "rows.npz", x=x, y=Y)
    answer = CliRunner().invoke(app, ["data", "pack", str(tmp_path / "rows.npz"), "--rows-per-partition", "5",
                                      "-o", str(tmp_path / "packed")])  # fmt: skip
    assert answer.exit_code == 2
    assert "rows.npz: row 6 of x has a number that is not finite" in " ".join(answer.output.split())
    assert not (tmp_path / "packed").exists()


def test_labels_beyond_the_classes_are_refused_by_file_and_row(tmp_path: Path) -> None:
    y = Y.copy()
    y[7] = 7
    np.savez(tmp_path / "rows.npz", x=X, y=y)
    command = ["data", "pack", str(tmp_path / "rows.npz"), "--rows-per-partition", "5", "-o", str(tmp_path / "packed")]
    answer = CliRunner().invoke(app, [*command, "--classes", "4"])
    assert answer.exit_code == 2
    assert "rows.npz: row 7 of y has 7; the model takes 0 to 3" in " ".join(answer.output.split())
    assert not (tmp_path / "packed").exists()
    assert CliRunner().invoke(app, [*command, "--classes", "8"]).exit_code == 0
    pack_dataset(select_inputs({"x": X, "y": np.where(Y == 1, -100, Y)}), Cut(5, classes=3))
