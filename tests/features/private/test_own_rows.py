"""A holder's own rows: packed, checked against the job in the confined child, drawn from, and disclosed to nobody."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradmarket.compute.executor import Executor
from gradmarket.compute.machine import MachineLimits
from gradmarket.data.pack import Cut, pack_dataset, write_dataset
from gradmarket.data.token_rows import Text, load_text_rows
from gradmarket.market.errors import Refused, RunnerFailed
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import Usable, inspect_shards
from gradmarket.market.gradient.payload import decode_shards
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.manifest import Manifest
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.market.wire.poll import FaultKind
from gradmarket.runner import Runner
from graphdoc.encoding import canonical
from tests.worker.conftest import SPEC, MakeExecutor, offer, some_rows
from worker.features import fault_reports
from worker.features.private.own_rows import OwnRows
from worker.settings import WorkerSettings

INPUTS = {"x": {"dtype": "float32", "shape": [4]}, "y": {"dtype": "int64", "classes": 3}}
ALONE = {"replication": {"replicas": 1, "max_replicas": 1}}
DATA = {"inputs": INPUTS, "holders": ["0x" + "11" * 20], "least_rows": 16}
PRIVATE = SPEC | ALONE | {"data": DATA, "norm_bound": 0.5}
LIMITS = MachineLimits(max_flops=1e12, max_memory=2**31)


def spec(**changes: Any) -> JobSpec:
    return JobSpec.model_validate(PRIVATE | changes)


def packed(folder: Path, rows: int = 32, **arrays: np.ndarray) -> OwnRows:
    cut = Cut(rows=10**6)
    write_dataset(pack_dataset(some_rows(rows, 4, 3) | arrays, cut), folder)
    return OwnRows.opened(folder)


@pytest.fixture
def private(blobs: dict[Digest, bytes]) -> Publication:
    document, parameters, *_ = blobs
    made = spec()
    assert made.private is not None
    manifest = canonical(Manifest(inputs=made.private.inputs, partitions=()).model_dump(mode="json"))
    blobs[blob_digest(manifest)] = manifest
    return Publication(
        job="0123456789abcdef", spec=made, document=document, evaluation=None, parameters=parameters,
        manifest=blob_digest(manifest),
    )  # fmt: skip


def test_rows_that_fit_are_taken(tmp_path: Path, runner: Runner) -> None:
    own = packed(tmp_path)
    own.check(spec(), runner)
    assert own.count == 32


def test_rows_of_text_are_read_as_their_manifest_moves_them_on(tmp_path: Path, runner: Runner) -> None:
    rows = load_text_rows(Text("the cat sat on the mat. " * 9, 4))
    write_dataset(pack_dataset(rows.arrays, Cut(10**6, classes=256), rows.encoding), tmp_path)
    tokens = {"dtype": "int64", "shape": [4]}
    job = spec(data=DATA | {"inputs": {"x": tokens, "y": tokens | {"classes": 256}}})
    own = OwnRows.opened(tmp_path)
    own.check(job, runner)
    read = own.read(own.partition(0), runner)
    assert (read["x"][:, 1:] == read["y"][:, :-1]).all()
    with pytest.raises(Refused, match="row 0 of x has"):
        OwnRows.opened(tmp_path).check(
            spec(data=DATA | {"inputs": {"x": tokens | {"classes": 2}, "y": tokens}}), runner
        )


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (
            {"x": np.ones((32, 5), np.float32)},
            r"input x: the job reads float32\[4\] a row, the dataset has float32\[5\]",
        ),
        ({"x": np.ones((32, 4), np.int64)}, "the dataset has int64"),
        ({"z": np.ones(32, np.int64)}, "input z: the job reads nothing"),
        ({"y": np.full(32, 3, np.int64)}, "row 0 of y has 3; the model takes 0 to 2"),
    ],
)
def test_rows_that_break_the_schema_are_refused_here(
    tmp_path: Path, runner: Runner, arrays: dict[str, np.ndarray], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        packed(tmp_path, **arrays).check(spec(), runner)


def test_too_few_rows_are_refused_here(tmp_path: Path, runner: Runner) -> None:
    with pytest.raises(Refused, match="16 rows or more; the dataset has 15"):
        packed(tmp_path, rows=15).check(spec(), runner)


def test_a_file_that_was_changed_is_refused(tmp_path: Path, runner: Runner) -> None:
    own = packed(tmp_path)
    (file,) = tmp_path.glob("train*")
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(Refused, match="differs from its manifest"):
        own.check(spec(), runner)


def test_a_malformed_file_is_read_in_the_confined_child_alone(tmp_path: Path, runner: Runner) -> None:
    own = packed(tmp_path)
    (file,) = tmp_path.glob("train*")
    file.write_bytes(b"\xff" * 100)
    (partition,) = own.manifest.partitions
    lied = partition.model_copy(update={"digest": blob_digest(b"\xff" * 100), "bytes": 100})
    false = replace(own, manifest=own.manifest.model_copy(update={"partitions": (lied,)}))
    with pytest.raises((Refused, RunnerFailed)):
        false.check(spec(), runner)


def test_a_folder_without_a_packed_dataset_is_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        OwnRows.opened(tmp_path)
    assert "gradmarket data pack" in refused.value.remedy


def test_rows_differ_from_round_to_round_and_from_holder_to_holder(tmp_path: Path) -> None:
    one, other = packed(tmp_path / "a"), packed(tmp_path / "b")
    assert one.rows(spec(), 0) == one.rows(spec(), 0)
    assert one.rows(spec(), 0) != one.rows(spec(), 1)
    assert one.rows(spec(), 0) != other.rows(spec(), 0), "the draw is each holder's secret"


@pytest.mark.parametrize("uplink", ["fp32", "int8", "two_bit"])
def test_an_honest_answer_is_within_the_bound_whatever_its_rows(
    tmp_path: Path, make_executor: MakeExecutor, private: Publication, uplink: str
) -> None:
    """Rows a thousand times as large give a gradient far beyond the bound; the answer is scaled down to it."""
    private = private.model_copy(update={"spec": spec(uplink={"codec": uplink})})
    own = packed(tmp_path / "rows", x=1000 * np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32))
    bench: Executor = make_executor(LIMITS, None, None, own)
    asked = offer(private)
    payload, _ = bench.work(private, asked)
    info = bench._load_document(private)
    found = inspect_shards(info.layout, decode_shards(info.layout, payload, load_codec(uplink), asked.seed), 0.5)
    assert isinstance(found, Usable)
    assert found.norm > 0.3


def test_a_worker_without_rows_refuses_the_job_before_it_computes(
    make_executor: MakeExecutor, private: Publication
) -> None:
    with pytest.raises(Refused, match="this worker has none"):
        make_executor(LIMITS).check_task_fits(private)


def test_the_fault_of_a_private_job_has_nothing_of_the_rows(private: Publication) -> None:
    lease: Any = SimpleNamespace(job=private.job)
    context: Any = SimpleNamespace(spec=lambda _job: private.spec)
    assert fault_reports.fault_of(context, lease, Refused("row 3 of y has 7")) is None
    published: Any = SimpleNamespace(spec=lambda _job: None)
    told = fault_reports.fault_of(published, lease, Refused("row 3 of y has 7"))
    assert told is not None
    assert told.kind == FaultKind.REFUSED


def test_a_dataset_is_for_one_job(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--for"):
        WorkerSettings(dataset=tmp_path)
    assert WorkerSettings(dataset=tmp_path, jobs=frozenset({"a"})).dataset == tmp_path  # type: ignore[arg-type]
