"""A job's step is bounded by what its workers' devices may hold, not by the service, which computes nothing of it."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from graphdoc import tensors
from requester.blobs.disk import DiskBlobs
from requester.model_runner import GIB, ModelRunner, PublishedModel
from requester.settings import RequesterSettings
from tests.handmade import Raw, encoded, linear
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
    return modelling.uploaded(blobs, spec, spec.model)  # type: ignore[arg-type]


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
