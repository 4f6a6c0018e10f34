"""Holders of a private job and their number of rows: the route of market.wire.holding."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.api_service import Service

INPUTS = {"x": {"dtype": "float32", "shape": [64]}, "y": {"dtype": "int64", "classes": 10}}
Post = Callable[..., dict[str, Any]]


def private(*holders: str, **more: Any) -> dict[str, Any]:
    return {"inputs": INPUTS, "holders": list(holders), "least_rows": 32, **more}


def test_a_listed_worker_joins_once_and_its_first_row_count_stands(service: Service, posted: Post) -> None:
    address, worker = service.worker()
    job = posted(data=private(address))["id"]
    door = f"/v1/work/holdings/{job}"
    for rows in (100, 50, 10**9, None):
        assert worker.put(door, json={"rows": rows}).json() == {"job": job, "rows": 100}


def test_a_holder_may_join_without_a_row_count(service: Service, posted: Post) -> None:
    address, worker = service.worker()
    job = posted(data=private(address))["id"]
    assert worker.put(f"/v1/work/holdings/{job}", json={}).json()["rows"] is None


def test_an_unlisted_worker_cannot_join(service: Service, posted: Post) -> None:
    address, _ = service.worker()
    _, stranger = service.worker()
    refused = stranger.put(f"/v1/work/holdings/{posted(data=private(address))['id']}", json={"rows": 100})
    assert refused.status_code == 403
    assert "not listed" in refused.json()["detail"]


@pytest.mark.parametrize(
    "said", [{"rows": 31}, {"rows": 0}, {"rows": -1}, {"rows": 1, "data": [[1.0]]}, {"rows": 2**60}]
)
def test_too_few_rows_or_anything_more_than_their_number_is_refused(
    service: Service, posted: Post, said: dict[str, Any]
) -> None:
    address, worker = service.worker()
    job = posted(data=private(address))["id"]
    assert worker.put(f"/v1/work/holdings/{job}", json=said).status_code == 422


def test_a_job_of_published_rows_takes_no_holder(service: Service, posted: Post) -> None:
    _, worker = service.worker()
    assert worker.put(f"/v1/work/holdings/{posted()['id']}", json={"rows": 100}).status_code == 404


def test_a_job_that_ended_takes_no_holder(service: Service, posted: Post) -> None:
    address, worker = service.worker()
    job = posted(data=private(address))["id"]
    service.requester.post(f"/v1/jobs/{job}/cancel")
    assert worker.put(f"/v1/work/holdings/{job}", json={"rows": 100}).status_code == 409


def test_a_job_that_wants_votes_on_private_rows_is_refused_with_the_field(service: Service) -> None:
    spec = {
        "name": "p", "model": {"architecture": "mlp"}, "data": private("0x" + "11" * 20), "step": {"rows": 32},
        "optimizer": {"lr": 0.1}, "rounds": 1, "price": "1000000000", "replication": {"replicas": 3},
    }  # fmt: skip
    refused = service.requester.post("/v1/jobs", json=spec)
    assert refused.status_code == 422
    assert "none can vote" in refused.text
    assert '"replication"' in refused.text
