"""A job's step is bounded by its workers' devices, not by the service, which computes nothing of it."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Column, Manifest, Partition
from gradmarket.market.terms import Digest
from graphdoc import tensors
from requester.blobs.disk import DiskBlobs
from requester.features.ready_jobs import publish_ready_model
from requester.model_runner import GIB, ModelRunner, PublishedModel
from requester.settings import RequesterSettings
from tests.handmade import Raw, encoded, linear
from tests.lanes import FULL
from tests.requester.test_evaluation_bounds import large

DEFAULT: int = RequesterSettings.model_fields["step_memory"].default
SMALL = 2**24


@pytest.fixture(scope="module", params=[DEFAULT, SMALL])
def modelling(request: pytest.FixtureRequest) -> Iterator[ModelRunner]:
    with closing(ModelRunner(step_memory=request.param)) as made:
        yield made


def publish(modelling: ModelRunner, folder: Path, document: Raw, **step: Any) -> PublishedModel:
    blobs = DiskBlobs(folder / "blobs")
    model = {
        "document": blobs.put(encoded(document)),
        "parameters": blobs.put(tensors.pack_tensors({"w": np.ones((1, 3), np.float32)})),
    }
    given = {"model": model, "data": {"manifest": model["document"]}, "step": step, "optimizer": {"lr": 0.1}}
    spec = JobSpec.model_validate({"name": "test", "rounds": 1, "price": "10", **given})
    return modelling.describe_model(blobs, spec, spec.model)  # type: ignore[arg-type]


@pytest.mark.parametrize("modelling", [DEFAULT], indirect=True)
def test_a_step_of_more_than_the_service_s_own_memory_is_taken(modelling: ModelRunner, tmp_path: Path) -> None:
    model = publish(modelling, tmp_path, large(2**15, 1), rows=8)
    assert 8 * GIB < model.peak_bytes < DEFAULT


@pytest.mark.parametrize("modelling", [SMALL], indirect=True)
def test_rows_that_do_not_fit_at_once_get_the_microbatch_that_does(modelling: ModelRunner, tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match=r"a pass of 1000000 rows .*GRADMARKET_STEP_MEMORY") as refused:
        publish(modelling, tmp_path, linear(), rows=1_000_000)
    found = re.search(r"set it to (\d+)$", str(refused.value))
    assert found, refused.value
    proposed = int(found[1])
    assert publish(modelling, tmp_path, linear(), rows=1_000_000, microbatch=proposed).child
    with pytest.raises(JobRefused, match=rf"set it to {proposed}$"):
        publish(modelling, tmp_path, linear(), rows=1_000_000, microbatch=2 * proposed)


@pytest.mark.parametrize("modelling", [SMALL], indirect=True)
def test_a_model_of_which_no_row_fits_is_refused_in_words(modelling: ModelRunner, tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match=r"take a smaller model$"):
        publish(modelling, tmp_path, large(2**12, 1), rows=2)


@pytest.fixture(scope="module")
def plain() -> Iterator[ModelRunner]:
    with closing(ModelRunner()) as made:
        yield made


def publish_ready(modelling: ModelRunner, folder: Path, room: int | None, **step: Any) -> PublishedModel:
    """Publishes a ready model of which all rows at once take some 60 MiB."""
    given = {"model": {"architecture": step.pop("architecture", "mlp")}, "data": {"ready": "digits"}}
    given |= {"step": {"rows": 4096, **step}, "optimizer": {"lr": 0.1}}
    spec = JobSpec.model_validate({"name": "test", "rounds": 1, "price": "10", **given})
    part = Partition(name="train", link="/v1/blobs/x", digest=Digest("blake3:" + "11" * 32), bytes=1, rows=4096)
    inputs = {"x": Column(dtype="float32", shape=(1, 8, 8)), "y": Column(dtype="int64", classes=10)}
    manifest = Manifest(inputs=inputs, partitions=(part,))
    return publish_ready_model(modelling, DiskBlobs(folder / "blobs"), spec, manifest, room)


@FULL
def test_rows_that_do_not_fit_the_workers_are_halved_where_no_microbatch_is_named(
    plain: ModelRunner, tmp_path: Path
) -> None:
    whole = publish_ready(plain, tmp_path, None)
    assert whole.step.microbatch is None
    assert publish_ready(plain, tmp_path, whole.peak_bytes).step == whole.step, "what fits stays as it is"
    room = (whole.peak_bytes + publish_ready(plain, tmp_path, None, microbatch=2048).peak_bytes) // 2
    chosen = publish_ready(plain, tmp_path, room)
    assert chosen.step.microbatch == 2048
    assert chosen.peak_bytes <= room < whole.peak_bytes
    named = publish_ready(plain, tmp_path, room, microbatch=4096)
    assert named.step.microbatch == 4096, "what the requester names is the requester's"


@FULL
def test_where_not_one_row_fits_or_rows_mix_the_step_stays_as_it_is(plain: ModelRunner, tmp_path: Path) -> None:
    assert publish_ready(plain, tmp_path, 1).step.microbatch is None
    assert publish_ready(plain, tmp_path, 2**22, architecture="cnn").step.microbatch is None
