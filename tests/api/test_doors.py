"""docs/doors.md lists every route, its callers, and the cost of a request before its caller is known."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from structlog.contextvars import get_contextvars

from contracts import deployment as deployments
from requester.api.blob_routes import OCTETS
from requester.features.body_limits.token_first import OPEN, STREAMED, WRITING
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from tests.api.test_authorisation import BODIES, DATA, DESCRIBED, DIGEST, EXPECTED, JOB, with_a_replica
from tests.api.test_authorisation import PAGES as WEB

PAGES = Path(__file__).parents[2] / "docs"
PAGE = (PAGES / "doors.md").read_text()
CPU = re.compile(r"^- `(\w+) (\S+)`: .*, ([\d.]+)$", re.MULTILINE)
MEASURED = PAGES.parent / "benchmarks" / "results" / "doors.json"
ROW = re.compile(r"^- `(\w+) (\S+)`: (.+?), (.+?), (\d+), ", re.MULTILINE)
DOORS = {(method, path): (who, read, int(most)) for method, path, who, read, most in ROW.findall(PAGE)}
ALL = EXPECTED | WEB
MADE_UP = {"Authorization": "Bearer made-up"}


def name_callers(nobody: int, requester: int, worker: int, other: int) -> str:
    if nobody != 401:
        return "anybody"
    if requester == 403:
        return "the worker" if other in (403, 404) and worker != other else "workers"
    return "the requester" if worker == 403 else "any token"


def describe_read(method: str, path: str) -> str:
    """Of a body, while nobody is known."""
    if method not in WRITING or path.startswith(STREAMED):
        return "nothing"
    return "parsed" if path in OPEN else "dropped"


def test_the_page_has_every_door_and_no_other() -> None:
    assert DOORS.keys() == ALL.keys() | {("GET", path) for path in DESCRIBED}


@pytest.mark.parametrize("door", ALL, ids=" ".join)
def test_the_page_has_each_route_s_callers_and_reads(door: tuple[str, str]) -> None:
    assert DOORS[door][:2] == (name_callers(*ALL[door]), describe_read(*door))


def test_every_route_of_octets_is_a_stream_without_the_limit_of_parsed_bodies() -> None:
    """Else a body of more than `max_body_bytes` is refused before its route counts it, and its price is by length."""
    paths = json.loads((PAGES.parent / "tests" / "goldens" / "data" / "openapi.json").read_text())["paths"]
    takes = {
        path
        for path, methods in paths.items()
        for route in methods.values()
        if isinstance(route, dict) and OCTETS in route.get("requestBody", {}).get("content", {})
    }
    assert len(takes) > 4
    assert sorted(path for path in takes if not path.startswith(STREAMED)) == []


@contextmanager
def statements(service: Any) -> Iterator[list[str]]:
    """Those of requests: the service looks at its rows by itself too."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "request" in get_contextvars():
            seen.append(statement)

    engine = service.context.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def service(anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    """With one job."""
    data = tmp_path_factory.mktemp("doors")
    deployments.write_deployment(deployment, data / "deployment.json")
    with serving(RequesterSettings(data=data, rpc=anvil.url)) as made:
        yield made


@pytest.fixture(scope="module")
def places(service) -> dict[str, str]:  # type: ignore[no-untyped-def]
    address, _ = service.worker()
    service.requester.put(f"/v1/blobs/{DIGEST}", content=DATA)
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    task, replica = with_a_replica(service, job, address)
    of_job = {
        "job_id": job,
        "task_id": task,
        "replica": replica,
        "fence": "1",
        "number": "0",
        "attempt": "0",
        "step": "1",
    }
    return {"name": "nobody", "webhook_id": "0" * 16, "kind": "offer", "digest": DIGEST, "address": address} | of_job


@pytest.mark.parametrize("door", ALL, ids=" ".join)
def test_a_stranger_s_request_costs_at_most_the_page_s_statements(
    service: Any, places: dict[str, str], door: tuple[str, str]
) -> None:
    """With a token that somebody made up, where one is asked for: that one is looked up."""
    method, path = door
    with statements(service) as seen:
        service.anyone.request(method, path.format(**places), **BODIES.get(door, {}), headers=MADE_UP)
    told = [statement for statement in seen if not statement.startswith(("BEGIN", "PRAGMA"))]
    assert len(told) <= DOORS[door][2], (len(told), told)
    if method in WRITING:
        assert len(told) == (path not in OPEN), "a token is looked up, and nothing else"


def test_the_page_has_the_measured_times() -> None:
    told = {f"doors.{method} {path}.worst_ms": float(cpu) for method, path, cpu in CPU.findall(PAGE)}
    measured = {figure["name"]: round(figure["value"], 1) for figure in json.loads(MEASURED.read_text())}
    worst = measured.pop("doors.worst_ms")
    assert told == measured
    assert worst == max(measured.values())
