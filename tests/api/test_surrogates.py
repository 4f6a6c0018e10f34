"""Every operation under texts that no UTF-8 has, NULs and raw bytes, wherever a stranger can write: no answer of 5xx.

schemathesis makes the requests, with half surrogate pairs in any text. They are sent as bytes: in JSON as escapes, in
paths and queries percent-encoded, in headers as they are.
"""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import quote, quote_from_bytes, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.schemas import BaseSchema

from contracts import deployment as deployments
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from tests.api.test_authorisation import DATA, DIGEST, EXPECTED, JOB, with_a_replica
from tests.lanes import leave_to_full
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.hypothesis

EXAMPLES: Final = 200 if settings.get_current_profile_name() == "deep" else 4
HALVES: Final = "\ud800\udc00\udfff\udbff\0\x7fü\U0001f600"
BOUNDED: Final = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CONTROL: Final = bytes([*range(32), 127])
"""Bytes forbidden in headers: h11 refuses them before the service sees them."""
ODD: Final = st.text(st.sampled_from(HALVES + "az09/%&=.-:"), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def here(postgres, anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    """On PostgreSQL, which takes fewer texts; test_texts_on_sqlite asks the same of one on SQLite."""
    data = tmp_path_factory.mktemp("surrogates")
    deployments.write_deployment(deployment, data / "deployment.json")
    with serving(RequesterSettings(data=data, rpc=anvil.url, database=postgres.new())) as made:
        yield made


@pytest.fixture(scope="module")
def schema(here: Service) -> BaseSchema:
    project = ProjectConfig(generation=GenerationConfig(codec=None, allow_x00=True))
    config = SchemathesisConfig(projects=ProjectsConfig(default=project))
    return schemathesis.openapi.from_dict(here.app.openapi(), config=config)


@pytest.fixture(scope="module")
def places(here: Service) -> dict[str, str]:
    address, worker = here.worker()
    here.requester.put(f"/v1/blobs/{DIGEST}", content=DATA)
    job = here.requester.post("/v1/jobs", json=JOB).json()["id"]
    task, replica = with_a_replica(here, job, address)
    told = {"job_id": job, "task_id": task, "replica": replica, "address": address, "digest": DIGEST}
    told |= {
        "name": "nobody",
        "number": "0",
        "fence": "1",
        "attempt": "0",
        "step": "1",
        "kind": "offer",
        "webhook_id": "0" * 16,
    }
    return told | {"token": worker.headers["Authorization"]}


def token(here: Service, places: dict[str, str], route: tuple[str, str]) -> str:
    """Of whoever may pass."""
    _, requester, worker, _ = EXPECTED[route]
    return places["token"] if requester == 403 and worker != 403 else f"Bearer {here.token}"


def spoilt(draw: Any, value: Any) -> Any:
    """Some of its texts, and names, are odd ones."""
    if isinstance(value, dict):
        return {spoilt(draw, name): spoilt(draw, part) for name, part in value.items()}
    if isinstance(value, list):
        return [spoilt(draw, part) for part in value]
    return draw(ODD) if isinstance(value, str) and draw(st.integers(0, 3)) == 0 else value


def raw(text: object) -> bytes:
    return str(text).encode("utf-8", "surrogatepass")


def send_request(
    here: Service, method: str, target: str, headers: dict[str, bytes], body: bytes | None
) -> tuple[int, bytes]:
    place = urlsplit(here.url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.translate(None, CONTROL))
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (ConnectionResetError, BrokenPipeError):  # it refused malformed HTTP, and closed on the rest of the body
        return 400, b""
    finally:
        connection.close()


@pytest.mark.parametrize("route", leave_to_full([(route,) for route in EXPECTED], 12), ids=" ".join)
def test_no_text_is_an_error_of_ours(
    here: Service, schema: BaseSchema, places: dict[str, str], route: tuple[str, str]
) -> None:
    method, path = route
    names = {name for name in places if "{" + name + "}" in path}

    @BOUNDED
    @given(schema[path][method].as_strategy(), st.data())
    def try_case(case: Case, data: st.DataObject) -> None:
        kept = data.draw(st.booleans())
        parts = {name: places[name] if kept else data.draw(ODD) for name in names}
        target = path.format(**{name: quote_from_bytes(raw(part), safe="") for name, part in parts.items()})
        query = spoilt(data.draw, {**(case.query or {}), "cursor": data.draw(ODD)})
        if path.endswith("/events"):
            query["follow"] = "false"
        if "wait_s" in query:
            query["wait_s"] = 0
        said = "&".join(f"{quote(raw(name))}={quote(raw(value))}" for name, value in query.items())
        sent = {name: raw(value) for name, value in (case.headers or {}).items() if name.isascii() and name.isalpha()}
        for name in ("Idempotency-Key", "Last-Event-ID", "Range", "X-Forwarded-For"):
            sent[name] = raw(data.draw(ODD))
        sent["Authorization"] = raw(data.draw(st.sampled_from([token(here, places, route), "Bearer \ud800"])))
        body = None
        if "requestBody" in schema[path][method].definition.raw:
            words = spoilt(data.draw, case.body)
            words = {**words, "wait_s": 0} if isinstance(words, dict) and path.endswith("/poll") else words
            body = json.dumps(words, default=str).encode()
            sent["Content-Type"] = b"application/json"
        status, told = send_request(here, method, f"{target}?{said}", sent, body)
        assert status < 500, (method, target, said, sent, body, told)

    try_case()
