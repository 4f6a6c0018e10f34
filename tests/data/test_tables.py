"""Data frames and tables: words become categories, and rows that come later are converted alike."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset, TensorDataset

from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.data.tables import build_encoding, convert_table, encode_table, table_of
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.manifest import Encoding, parse_manifest
from gradmarket.sdk.rows import DatasetRows, load_rows, load_validation
from tests.kit.late_module import LateModule

pd: Any = LateModule("pandas")
pl: Any = LateModule("polars")

FIELDS = {
    "age": [31.0, 42.0, 53.0, 64.0],
    "city": ["Oslo", "Bern", "Oslo", "Rome"],
    "member": [True, False, True, True],
    "colour": ["red", "red", "blue", "red"],
    "bought": ["no", "yes", "yes", "no"],
}
X = [[31, 0, 1, 0, 1, 0, 1], [42, 1, 0, 0, 0, 0, 1], [53, 0, 1, 0, 1, 1, 0], [64, 0, 0, 1, 1, 0, 1]]
"""age, Bern, Oslo, Rome, member, blue, red."""


def as_pandas(fields: Any) -> Any:
    frame = pd.DataFrame(fields)
    frame["city"] = frame["city"].astype("category")
    return frame.set_index(pd.Index(range(100, 100 + len(frame))))  # an index is no column


FRAMES = {"pandas": as_pandas, "polars": lambda fields: pl.DataFrame(fields), "arrow": pa.table}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_with_words_becomes_numbers_and_its_manifest_has_the_encoding(frame: Any) -> None:
    rows = load_rows(frame(FIELDS), "bought")
    assert rows.arrays["x"].dtype == np.float32
    assert rows.arrays["x"].tolist() == X
    assert rows.arrays["y"].tolist() == [0, 1, 1, 0]
    packed = pack_dataset(rows.arrays, Cut(4), rows.encoding)
    kept = parse_manifest(packed.body).encoding
    assert kept is not None
    assert kept.inputs == {"x": ("age", "city", "member", "colour"), "y": ("bought",)}
    assert kept.categories == {"city": ("Bern", "Oslo", "Rome"), "colour": ("blue", "red"), "bought": ("no", "yes")}


def encoded(frame: Any, encoding: Encoding) -> dict[str, np.ndarray]:
    table = table_of(frame)
    assert table is not None
    return encode_table(table, encoding)


def make_encoding() -> Encoding:
    rows = load_rows(pa.table(FIELDS), "bought")
    assert rows.encoding is not None
    return rows.encoding


def test_later_rows_are_converted_alike_in_any_order_of_columns_and_new_words_are_zeros() -> None:
    later = {"colour": ["green", "blue"], "member": [False, True], "city": ["Rome", "Lima"], "age": [1.5, 2.5]}
    columns = encoded(as_pandas(later), make_encoding())
    joined = np.concatenate([columns[name].reshape(2, -1) for name in ("age", "city", "member", "colour")], axis=1)
    assert joined.tolist() == [[1.5, 0, 0, 1, 0, 0, 0], [2.5, 0, 0, 0, 1, 1, 0]]


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ({"age": [1.0]}, "there is no column city, member, colour: the model was trained with it"),
        ({**{k: v[:1] for k, v in FIELDS.items()}, "bought": ["maybe"]}, "'bought' has a class that training lacked"),
        ({**{k: v[:1] for k, v in FIELDS.items()}, "city": [None]}, "'city'"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_a_sentence(later: Any, why: str) -> None:
    with pytest.raises(Refused, match=why):
        encoded(pa.table(later), make_encoding())


ROW = pa.table({name: values[:1] for name, values in FIELDS.items()})


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([1.0]), "column 'city' is double: training had words there, Bern, Oslo, Rome"),
        (pa.array([True]), "column 'city' is bool: training had words there"),
        (pa.array([["Oslo"]]), "column 'city' is list<.*>: training had words there"),
        (pa.array([{"a": 1}]), "column 'city' is struct<.*>: training had words there"),
        (pa.array([None]), "column 'city' has 1 missing values"),
        (pa.array([7]), "column 'city' is int64: training had words there"),
        (pa.array([0], pa.timestamp("s")), "column 'city' is timestamp.*: training had words there"),
        (pa.array([1.0]).dictionary_encode(), "column 'city' is dictionary<values=double.*: training had words there"),
    ],
)
def test_a_column_of_words_that_comes_back_as_another_type_is_refused(column: pa.Array, why: str) -> None:
    with pytest.raises(Refused, match=why):
        encoded(ROW.set_column(ROW.column_names.index("city"), "city", column), make_encoding())


def test_no_rows_of_no_type_are_refused_and_no_rows_of_words_are_none() -> None:
    with pytest.raises(Refused, match="column 'city' is null: training had words there"):
        encoded(
            ROW.slice(0, 0).set_column(ROW.column_names.index("city"), "city", pa.array([], pa.null())),
            make_encoding(),
        )
    assert encoded(ROW.slice(0, 0), make_encoding())["city"].shape == (0, 3)


def test_whole_numbers_are_the_words_of_a_category_of_numbers() -> None:
    trained = convert_table(pa.table({"zip": pa.array([150, 8001]).dictionary_encode()}))
    encoding = build_encoding({"x": ["zip"]}, trained.categories)
    for later in (pa.array([8001, 1]), pa.array(["8001", "new"]), pa.array([8001, 1]).dictionary_encode()):
        assert encode_table(pa.table({"zip": later}), encoding)["zip"].tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize("kind", [pa.float64(), pa.bool_()])
def test_a_category_of_another_type_than_whole_numbers_comes_back_as_it_was(kind: pa.DataType) -> None:
    column = pa.array([0, 1]).cast(kind).dictionary_encode()
    trained = convert_table(pa.table({"c": column}))
    encoding = build_encoding({"x": ["c"]}, trained.categories)
    assert encode_table(pa.table({"c": column}), encoding)["c"].tolist() == [[1, 0], [0, 1]]


def test_a_column_named_twice_is_refused_and_one_that_is_not_read_may_be() -> None:
    with pytest.raises(Refused, match="two columns are named 'city': rename one"):
        encoded(ROW.append_column("city", ROW.column("city")), make_encoding())
    with pytest.raises(Refused, match="two columns are named 'bought': rename one"):
        encoded(ROW.append_column("bought", ROW.column("bought")), make_encoding())
    more = ROW.append_column("more", ROW.column("age")).append_column("more", ROW.column("age"))
    assert encoded(more, make_encoding())["age"].tolist() == [31.0]


@pytest.mark.parametrize("column", [pa.array([None]), pa.array([{"a": 1}]), pa.array([0], pa.timestamp("s"))])
def test_a_column_of_numbers_that_comes_back_as_another_type_is_refused(column: pa.Array) -> None:
    with pytest.raises(Refused, match="column 'age'"):
        encoded(ROW.set_column(0, "age", column), make_encoding())


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (["a", None, "b", "b"], "'c' has 1 missing values"),
        (["1", "2.5", "N/A", "3"], "'c' holds numbers as text \\('N/A' among them\\)"),
        (["x" * 201, "b", "b", "b"], "'c' holds text \\('xxx"),
    ],
)
def test_words_that_are_no_categories_are_refused(column: list[Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        load_rows(pa.table({"c": column, "y": [0, 1, 0, 1]}), "y")


def test_ids_are_no_categories() -> None:
    table = pa.table({"c": [f"id{number}" for number in range(1001)], "y": [0] * 1001})
    with pytest.raises(Refused, match="'c' has 1001 different words, more than 1000 categories: drop it"):
        load_rows(table, "y")


def test_numbers_of_a_categorical_column_are_categories() -> None:
    frame = pd.DataFrame({"zip": pd.Categorical(["0150", "8001", "0150"]), "y": [0, 1, 1]})
    assert load_rows(frame, "y").arrays["x"].tolist() == [[1, 0], [0, 1], [1, 0]]


def test_a_manifest_without_a_table_is_as_it_was_and_a_stranger_s_encoding_is_bounded() -> None:
    assert b"encoding" not in pack_dataset({"x": np.zeros((2, 1), np.float32), "y": np.zeros(2, np.int64)}, Cut(2)).body
    packed = pack_dataset(load_rows(pa.table(FIELDS), "bought").arrays, Cut(4), make_encoding())
    words = ",".join(f'"{number}"' for number in range(1001))
    with pytest.raises(JobRefused, match=r"data\.manifest\.encoding.categories\.colour"):
        parse_manifest(packed.body.replace(b'"colour":["blue","red"]', f'"colour":[{words}]'.encode()))


words = st.lists(st.sampled_from(["a", "b", "c", "", "ä", "B"]), min_size=1, max_size=20)


@given(words, words)
def test_categories_are_sklearn_s_one_hot(trained: list[str], later: list[str]) -> None:
    table = convert_table(pa.table({"c": trained}))
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    oracle = preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32)
    assert (table.arrays["c"] == oracle.fit_transform(np.array(trained)[:, None])).all()
    encoding = build_encoding({"x": ["c"]}, table.categories)
    assert (encode_table(pa.table({"c": later}), encoding)["c"] == oracle.transform(np.array(later)[:, None])).all()


def test_a_loader_and_a_pair_are_rows_without_an_encoding() -> None:
    import_rows = load_rows(([[0.5], [1.5]], [0, 1]))
    assert isinstance(import_rows, DatasetRows)
    assert import_rows.encoding is None
    pairs = TensorDataset(torch.tensor([[0.5], [1.5]]), torch.tensor([0, 1]))
    for dataset in (pairs, Subset(pairs, [0, 1])):
        loaded = load_rows(DataLoader(dataset, batch_size=1, shuffle=True))
        assert {name: rows.tolist() for name, rows in loaded.arrays.items()} == {"x": [[0.5], [1.5]], "y": [0, 1]}


def test_validation_rows_become_numbers_by_the_training_rows_words() -> None:
    """By words of their own a city that they lack would move all columns after it."""
    training = load_rows(pa.table(FIELDS), "bought")
    some = {name: values[:2] for name, values in FIELDS.items()}
    assert load_validation(pa.table(some), "bought", training)["x"].tolist() == X[:2]
    assert load_rows(pa.table(some), "bought").arrays["x"].shape != (2, 7), "the mistaken twin"
    unlabelled = {name: values for name, values in some.items() if name != "bought"}
    with pytest.raises(Refused, match="validation: y is missing, and training has int64"):
        load_validation(pa.table(unlabelled), "bought", training)
    with pytest.raises(Refused, match="validation: there is no column city, member, colour: the model was"):
        load_validation(pa.table({"age": [1.0], "bought": ["no"]}), "bought", training)
    with pytest.raises(Refused, match="validation: column 'bought' has a class that training lacked"):
        load_validation(pa.table({**some, "bought": ["no", "perhaps"]}), "bought", training)
