"""A row that no worker can compute is found when its job is posted, in partitions of every format."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradmarket.data.pack import Cut, Packed, pack_dataset
from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import LinkedData
from gradmarket.market.manifest import Manifest
from graphdoc import formats
from graphdoc.document.interpret import Program
from graphdoc.document.ranges import find_input_ranges
from graphdoc.document.schema import parse_document
from graphdoc.encoding import canonical
from graphdoc.figures import Range
from graphdoc.values import Outside, find_misfit
from requester.blobs.disk import DiskBlobs
from requester.dataset import check_dataset as check_links
from requester.dataset import manifest_of
from requester.features.row_checks import check_rows
from requester.model_runner import ModelRunner
from tests.handmade import encoded, node, tensor, value

DIGEST = "blake3:" + "3" * 64
SPEC = JobSpec.model_validate(
    {
        "name": "rows",
        "model": {"document": DIGEST, "parameters": DIGEST},
        "data": {"manifest": DIGEST},
        "step": {"rows": 4},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "rounds": 1,
        "seed": 1,
        "price": "1",
    }
)
LABELS = {"y": [Range(0, 4, None)]}


def dataset(bad: int | None = None, **also: np.ndarray) -> dict[str, np.ndarray]:
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    y = np.arange(20, dtype=np.int64) % 4
    if bad is not None:
        y[11] = bad
    return {"x": x, "y": y, **also}


@pytest.fixture(scope="module")
def modelling() -> Iterator[ModelRunner]:
    made = ModelRunner()
    yield made
    made.close()


def check(modelling: ModelRunner, folder: Path, packed: Packed, manifest: Manifest | None = None) -> None:
    blobs = DiskBlobs(folder / "blobs")
    for data in packed.files.values():
        blobs.put(data)
    check_rows(blobs, modelling, SPEC, manifest or packed.manifest, LABELS)


@pytest.mark.parametrize("kind", formats.list_format_names())
def test_a_label_that_the_model_does_not_take_is_named(modelling: ModelRunner, tmp_path: Path, kind: str) -> None:
    check(modelling, tmp_path, pack_dataset(dataset(), Cut(rows=10, format=kind)))
    with pytest.raises(JobRefused, match=r"partitions\.train-\d: row \d of y has 7; the model takes 0 to 3") as refused:
        check(modelling, tmp_path, pack_dataset(dataset(7), Cut(rows=10, format=kind)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"dtype": "int32"}, r"train-0: it cannot be read: .*y is int64\[10\], not int32\[10\]"),
        ({"shape": (2,)}, r"train-0: it cannot be read: .*y is int64\[10\], not int64\[10, 2\]"),
    ],
)
def test_arrays_unlike_the_manifest_are_named(
    modelling: ModelRunner, tmp_path: Path, lie: dict[str, object], why: str
) -> None:
    packed = pack_dataset(dataset(), Cut(rows=10))
    inputs = packed.manifest.inputs | {"y": packed.manifest.inputs["y"].model_copy(update=lie)}
    with pytest.raises(JobRefused, match=why):
        check(modelling, tmp_path, packed, packed.manifest.model_copy(update={"inputs": inputs}))


def test_rows_unlike_the_manifest_are_named(modelling: ModelRunner, tmp_path: Path) -> None:
    packed = pack_dataset(dataset(), Cut(rows=10))
    first, second = packed.manifest.partitions
    fewer = packed.manifest.model_copy(update={"partitions": (first.model_copy(update={"rows": 9}), second)})
    with pytest.raises(JobRefused, match="train-0: it cannot be read"):
        check(modelling, tmp_path, packed, fewer)


def test_a_checked_partition_is_not_read_again(modelling: ModelRunner, tmp_path: Path) -> None:
    packed = pack_dataset(dataset(), Cut(rows=7))
    check(modelling, tmp_path, packed)
    check_rows(DiskBlobs(tmp_path / "empty"), modelling, SPEC, packed.manifest, LABELS)


def test_partitions_at_another_host_are_not_checked(modelling: ModelRunner, tmp_path: Path) -> None:
    packed = pack_dataset(dataset(7), Cut(rows=10, base_url="https://example.org/data"))
    check(modelling, tmp_path, packed)


@pytest.mark.parametrize("base", ["http://market.example:80", "HTTP://Market.Example/.", "//market.example", "/v1/.."])
def test_a_link_to_this_service_s_own_blob_is_that_blob_however_it_is_spelt(
    modelling: ModelRunner, tmp_path: Path, base: str
) -> None:
    blobs, packed = DiskBlobs(tmp_path / "blobs"), pack_dataset(dataset(7), Cut(rows=10))
    parts = packed.manifest.partitions
    absolute = tuple(part.model_copy(update={"link": f"{base}/v1/blobs/{part.digest}"}) for part in parts)
    told = load_uploaded_manifest(blobs, packed.manifest.model_copy(update={"partitions": absolute}))
    assert told == packed.manifest
    with pytest.raises(JobRefused, match=r"upload it first"):
        check_links(blobs, SPEC, told)
    with pytest.raises(JobRefused, match=r"partitions\.train-\d: row \d of y has 7"):
        check(modelling, tmp_path, packed, told)


def test_a_link_to_another_s_blob_stays_as_it_is(tmp_path: Path) -> None:
    blobs, packed = DiskBlobs(tmp_path / "blobs"), pack_dataset(dataset(), Cut(rows=10))
    for base in ("https://market.example", "http://market.example:8000", "http://market.example.org", "http://[", "/x"):
        links = [
            part.model_copy(update={"link": f"{base}/v1/blobs/{part.digest}"}) for part in packed.manifest.partitions
        ]
        manifest = packed.manifest.model_copy(update={"partitions": tuple(links)})
        assert load_uploaded_manifest(blobs, manifest) == manifest


def load_uploaded_manifest(blobs: DiskBlobs, manifest: Manifest) -> Manifest:
    uploaded = blobs.put(canonical(manifest.model_dump(mode="json")))
    return manifest_of(blobs, LinkedData(manifest=uploaded), "http://market.example")


def test_the_ignored_label_is_in_order_and_every_place_of_a_row_is_looked_at() -> None:
    tokens = np.array([[1, 2, -100], [3, 4, 0], [0, 9, 1]])
    some = Range(0, 5, -100)
    assert find_misfit({"y": tokens}, {"y": [some]}) == Outside("y", 2, 9, some)
    every = Range(0, 5, None)
    assert find_misfit({"y": tokens}, {"y": [every]}) == Outside("y", 0, -100, every)
    assert find_misfit({"y": tokens[:0]}, {"y": [every]}) is None
    assert find_misfit({"y": tokens.astype(np.float32)}, {"y": [every]}) is None


def test_ranges_come_from_the_documents_own_operators() -> None:
    """An embedding of 11 tokens, read through a view; a loss over 5 classes whose label 3 is not counted."""
    document = encoded(
        {
            "format": "gradgraph/1",
            "sizes": {},
            "inputs": [
                tensor("param", "table", [11, 5], grad=True),
                tensor("data", "free", ["rows"], "int64"),
                tensor("data", "tokens", ["rows", 1], "int64"),
                tensor("data", "y", ["rows"], "int64"),
            ],
            "nodes": [
                node("flatten.using_ints", [value(2), 0, 1], 4),
                node("embedding.default", [value(0), value(4), -1, False, False], 5),
                node("cross_entropy_loss.default", [value(5), value(3), None, 1, 3, 0.0], 6),
            ],
            "loss": 6,
            "metrics": {},
            "updates": {},
        }
    )
    found = find_input_ranges(Program(parse_document(document)), 4)
    assert found == {"tokens": (Range(0, 11, None),), "y": (Range(0, 5, 3),)}
