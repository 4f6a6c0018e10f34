"""Hot routes bypass FastAPI's routers without a difference: the same document, refusals and counts."""

import httpx
import pytest

from requester.app import routers_with
from requester.feature import features_of
from requester.features.fast_routes import FastRouters
from tests.api.api_service import Service

HOT = {("GET", "/v1/health"), ("POST", "/v1/work/poll"), ("POST", "/v1/work/answers")}
POLL = {"determinism_class": "bench", "wait_s": 0.0}


async def nowhere(*_: object) -> None:
    raise AssertionError("FastAPI was asked")


def refused(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


def test_hot_routes_are_in_the_openapi_document(service: Service) -> None:
    routes = [route for router in routers_with(features_of(service.context)) for route in router.routes]
    doors = FastRouters(nowhere, routes, {})
    assert set(doors._doors) == HOT
    paths = service.anyone.get("/openapi.json").json()["paths"]
    assert all(method.lower() in paths[path] for method, path in HOT)


def test_a_worker_is_answered_and_counted(service: Service) -> None:
    _, worker = service.worker()
    assert worker.post("/v1/work/poll", json=POLL).json()["leases"] == []
    assert service.anyone.get("/v1/health").json() == {"status": "ok"}
    counts = service.anyone.get("/metrics").text
    assert 'gradmarket_request_seconds_count{method="POST",route="/v1/work/poll",status="200"}' in counts


@pytest.mark.parametrize("path", sorted(path for method, path in HOT if method == "POST"))
def test_hot_routes_admit_workers_alone(service: Service, path: str) -> None:
    refused(service.anyone.post(path, content=b"{}"), 401)
    refused(service.requester.post(path, content=b"{}"), 403)
    _, worker = service.worker()
    refused(worker.get(path), 405)


def test_a_malformed_poll_is_refused_by_its_field(service: Service) -> None:
    _, worker = service.worker()
    answer = worker.post("/v1/work/poll", json={**POLL, "capacity": "many"})
    refused(answer, 422)
    assert answer.json()["errors"][0]["field"] == "capacity"


def test_a_poll_that_is_no_json_is_refused_by_its_line_and_column(service: Service) -> None:
    _, worker = service.worker()
    answer = worker.post("/v1/work/poll", content=b"[" * 1000)
    refused(answer, 422)
    assert answer.json()["detail"] == "the body is not JSON: recursion limit exceeded at line 1 column 202"


def test_a_poll_of_nothing_but_faults_is_refused_by_its_first(service: Service) -> None:
    """Each empty commitment lacks four fields, and a megabyte holds 300,000 of them."""
    _, worker = service.worker()
    answer = worker.post("/v1/work/poll", json={**POLL, "commitments": [{}] * 2000})
    refused(answer, 422)
    assert {one["field"].rpartition(".")[0] for one in answer.json()["errors"]} == {"commitments.0"}


def test_a_body_of_more_values_than_any_honest_one_is_refused_unread(service: Service) -> None:
    _, worker = service.worker()
    answer = worker.post("/v1/work/poll", json={f"a{number}": 1 for number in range(60_000)})
    refused(answer, 413)
    assert answer.json()["detail"] == "a body has at most 50000 values"


def test_a_chunked_body_that_grows_too_long_is_refused(service: Service) -> None:
    _, worker = service.worker()
    refused(worker.post("/v1/work/poll", content=iter([b"["] + [b" " * 2**16] * 20)), 413)
