"""A job whose first rows give no loss is refused when it is posted, whoever made its document."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.manifest import Manifest
from graphdoc import formats, tensors
from requester.blobs.disk import DiskBlobs
from requester.features.row_checks import compute_first_step
from requester.model_runner import ModelRunner
from tests.handmade import Raw, encoded, linear, node, value


def root_of_loss() -> Raw:
    """The square root of linear regression's error: its gradient is infinite where the error is 0."""
    document = linear()
    return {**document, "nodes": [*document["nodes"], node("sqrt.default", [value(4)], 5)], "loss": 5}


def log_of_loss() -> Raw:
    document = linear()
    negated, log = node("neg.default", [value(4)], 5), node("log.default", [value(5)], 6)
    return {**document, "nodes": [*document["nodes"], negated, log], "loss": 6}


@pytest.fixture(scope="module")
def modelling() -> Iterator[ModelRunner]:
    with closing(ModelRunner()) as made:
        yield made


def check(modelling: ModelRunner, folder: Path, document: Raw, x: np.ndarray, y: np.ndarray, most: int = 10**9) -> None:
    blobs = DiskBlobs(folder / "blobs")
    packed = pack_dataset({"x": x, "y": y}, Cut(4096, formats.DEFAULT, 0.0, 0))
    for file in packed.files.values():
        blobs.put(file)
    parameters = blobs.put(tensors.pack_tensors({"w": np.ones((1, 3), np.float32)}))
    model = {"document": blobs.put(encoded(document)), "parameters": parameters}
    body = blobs.put(packed.body)
    given = {"model": model, "data": {"manifest": body}, "step": {"rows": 4}, "optimizer": {"lr": 0.1}}
    spec = JobSpec.model_validate({"name": "test", "rounds": 1, "price": "10", **given})
    publication = Publication(job="0" * 16, spec=spec, manifest=body, evaluation=None, **model)
    manifest = Manifest.model_validate_json(packed.body)
    compute_first_step(modelling, blobs, publication, manifest, manifest.partitions[0], most)


X, Y = np.ones((6, 3), np.float32), np.ones((6, 1), np.float32)


def test_a_loss_that_is_no_number_is_refused_unless_it_takes_long_to_know(
    modelling: ModelRunner, tmp_path: Path
) -> None:
    check(modelling, tmp_path, log_of_loss(), X, Y, 1)
    with pytest.raises(JobRefused, match=r"model\.document: its loss on the first 4 rows of .* is nan: nothing can be"):
        check(modelling, tmp_path, log_of_loss(), X, Y)


def test_a_gradient_that_is_no_number_is_refused(modelling: ModelRunner, tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match=r"the gradient of w on the first 4 rows of .* is not finite"):
        check(modelling, tmp_path, root_of_loss(), X, 3 * Y)


def test_an_honest_step_is_taken(modelling: ModelRunner, tmp_path: Path) -> None:
    check(modelling, tmp_path, root_of_loss(), X, Y)
