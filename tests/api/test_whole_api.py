"""Every operation of the OpenAPI document under generated requests, sound and broken: no 5xx, nothing undocumented."""

from dataclasses import dataclass

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from requester.features.disputes import MOST_WAIT_S
from tests.api.test_authorisation import DATA, DIGEST, EXPECTED, JOB, with_a_replica
from tests.lanes import leave_to_full
from tests.patience import PATIENCE_S

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
pytestmark = pytest.mark.hypothesis

EXAMPLES = 3 if settings.get_current_profile_name() == "tests" else 8
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def schema(service) -> BaseSchema:  # type: ignore[no-untyped-def]
    return schemathesis.openapi.from_dict(service.app.openapi())


@dataclass(frozen=True)
class Known:
    """The names in paths, and the clients."""

    places: dict[str, str]
    requester: httpx.Client
    worker: httpx.Client

    def choose_client(self, route: tuple[str, str]) -> httpx.Client:
        _, requester, worker, _ = EXPECTED[route]
        return self.worker if requester == 403 and worker != 403 else self.requester


@pytest.fixture(scope="module")
def known_places(service) -> Known:  # type: ignore[no-untyped-def]
    address, worker = service.worker()
    service.requester.put(f"/v1/blobs/{DIGEST}", content=DATA)
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    task, replica = with_a_replica(service, job, address)
    places = {"job_id": job, "task_id": task, "replica": replica, "address": address, "digest": DIGEST}
    return Known(places, service.requester, worker)


@pytest.mark.parametrize("mode", GenerationMode, ids=str)
@pytest.mark.parametrize("route", leave_to_full(((route,) for route in EXPECTED), 24), ids=" ".join)
def test_no_request_breaks_it_and_no_answer_is_undocumented(
    schema: BaseSchema, known_places: Known, route: tuple[str, str], mode: GenerationMode
) -> None:
    method, path = route
    operation, client = schema[path][method], known_places.choose_client(route)
    if mode is GenerationMode.NEGATIVE and not operation.definition.raw.keys() & {"parameters", "requestBody"}:
        return  # nothing to get wrong
    named = {name: value for name, value in known_places.places.items() if "{" + name + "}" in path}
    made = operation.as_strategy(mode)
    if named and mode is GenerationMode.POSITIVE:
        made |= operation.as_strategy(mode, path_parameters=named)

    @BOUNDED
    @given(made)
    def try_case(case: Case) -> None:
        if path.endswith("/events"):
            case.query = {**(case.query or {}), "follow": "false"}
        if path.endswith("/poll") and isinstance(case.body, dict):
            case.body = {**case.body, "wait_s": 0}
        waits = (case.query or {}).get("wait_s")
        if isinstance(waits, int | float) and 0 < waits <= MOST_WAIT_S:
            case.query = {**case.query, "wait_s": 0}
        case.call_and_validate(
            base_url=str(client.base_url),
            headers={"Authorization": client.headers["Authorization"]},
            checks=CHECKS,
            timeout=PATIENCE_S,
        )

    try_case()
