"""Half surrogate pairs, NULs and keys of another kind are refused in every field that a stranger can send."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from contracts import deployment as deployments
from requester.api.paging import encode_cursor
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from tests.api.test_authorisation import BODIES, EXPECTED, JOB
from tests.lanes import leave_to_full

HALF = "\ud800"
WORDS = {"determinism_class": HALF, "jobs": [HALF], "vouchers_for": [HALF], "known": {HALF: "leased"}}
KEYS = [HALF, "a\0", "x", 1, 1.5, 2**62, -1, True, None, [], {}]


@pytest.fixture(scope="module")
def here(postgres, anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    """On PostgreSQL, which takes fewer texts; test_texts_on_sqlite asks the same of one on SQLite."""
    data = tmp_path_factory.mktemp("odd")
    deployments.write_deployment(deployment, data / "deployment.json")
    with serving(RequesterSettings(data=data, rpc=anvil.url, database=postgres.new())) as made:
        yield made


LISTS = {"jobs", "rounds", "tasks", "verdicts", "workers", "payments", "audits", "ledger"}


def lists() -> Iterator[str]:
    """The doors that take a cursor."""
    for method, path in EXPECTED:
        last = path.rpartition("/")[2]
        if method == "GET" and last in {
            "jobs",
            "rounds",
            "tasks",
            "verdicts",
            "workers",
            "payments",
            "audits",
            "ledger",
        }:
            yield path


@pytest.mark.parametrize("path", leave_to_full(lists(), 3))
def test_a_cursor_of_another_kind_is_not_ours(here: Service, path: str) -> None:
    place = path.format(job_id=here.requester.post("/v1/jobs", json=JOB).json()["id"])
    cursors = [list(made) for length in (1, 2, 3) for made in product(KEYS, repeat=length)]
    for cursor in [*cursors[: len(KEYS)], *cursors[len(KEYS) :: 29]]:
        answer = here.anyone.get(place, params={"cursor": encode_cursor(cursor)})
        assert answer.status_code in (200, 422), (cursor, answer.text)
        assert HALF not in json.dumps(cursor, ensure_ascii=False) or answer.status_code == 422, cursor


def test_a_list_refuses_a_cursor_of_another_type(here: Service) -> None:
    job = here.requester.post("/v1/jobs", json=JOB).json()["id"]
    for path, ours, wrong in (("payments", [0], ["a"]), ("rounds", [0], [0.5]), ("workers", ["a"], [1])):
        place = f"/v1/jobs/{job}/{path}"
        assert here.anyone.get(place, params={"cursor": encode_cursor(ours)}).status_code == 200
        assert here.anyone.get(place, params={"cursor": encode_cursor(wrong)}).status_code == 422


@pytest.mark.parametrize("name", WORDS)
def test_a_poll_with_half_a_surrogate_pair_is_refused(here: Service, name: str) -> None:
    _, worker = here.worker()
    body = json.dumps({"wait_s": 0, name: WORDS[name]})
    answer = worker.post("/v1/work/poll", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text


def spoilt(body: Any, word: str) -> Iterator[Any]:
    """The body with the word in the place of each text in turn, and as a further field of each mapping."""
    if isinstance(body, str):
        yield word
    elif isinstance(body, dict):
        yield {**body, word: word}
        for name, part in body.items():
            yield from ({**body, name: other} for other in spoilt(part, word))
    elif isinstance(body, list):
        for index, part in enumerate(body):
            yield from ([*body[:index], other, *body[index + 1 :]] for other in spoilt(part, word))


@pytest.mark.parametrize("route", [route for route, sent in BODIES.items() if "json" in sent], ids=" ".join)
@pytest.mark.parametrize("word", leave_to_full([HALF, "a\0b", "\udfff" * 50]))
def test_no_word_in_a_body_is_an_error_of_ours(here: Service, route: tuple[str, str], word: str) -> None:
    method, path = route
    job = here.requester.post("/v1/jobs", json=JOB).json()["id"]
    place = path.format(job_id=job, task_id=f"{job}-0-0-0", replica="x", name="x", number=0, address="0x" + "11" * 20)
    client = here.worker()[1] if path.startswith("/v1/work") else here.requester
    for body in spoilt(BODIES[route]["json"], word):
        text = json.dumps(body)
        answer = client.request(method, place, content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code < 500, (text, answer.text)
