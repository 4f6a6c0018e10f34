"""Answers of the routes: problems with remedies, cursors, idempotency, events, and a true OpenAPI document."""

import base64
import json
import random

import httpx
import pytest
from blake3 import blake3
from sqlalchemy import func, select

from requester.api.paging import encode_cursor
from requester.api.streams import BLOCK
from requester.store.tables import Job
from tests.api.api_service import Service

JOB = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "rounds": 3,
    "price": "1000000000",
}

WINDOWED = {"kind": "local", "rows": 8, "steps": 7, "window": 2, "optimizer": {"lr": 0.1}}
AUDITED = {"step": WINDOWED, "audit": {"probability": 0.5}, "replication": {"replicas": 3, "max_replicas": 3}}


def problem(answer: httpx.Response, status: int) -> dict:  # type: ignore[type-arg]
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["title"]
    return body


def test_a_job_is_created_with_its_place_its_notice_and_its_highest_cost(service) -> None:  # type: ignore[no-untyped-def]
    answer = service.requester.post("/v1/jobs", json=JOB)
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert job["costs"]["at_most"] == str(3 * 1 * 3 * 10**9)
    assert "Workers see the model and the training data" in job["notice"]
    assert service.anyone.get(answer.headers["location"]).json()["id"] == job["id"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"foo": 1}, "foo"),
        ({"price": "15"}, "price"),
        ({"price": "-1"}, "price"),
        ({"price": 1.5}, "price"),
        ({"rounds": 0}, "rounds"),
        ({"step": {"rows": 10_000}}, "step.rows"),
        ({"evaluation": {"partition": "tests"}}, "evaluation.partition"),
        ({"model": {"architecture": "pickle"}}, "model.architecture"),
        ({"optimizer": {"name": "sgd", "lr": 0.1, "momentun": 0.9}}, "optimizer.momentun"),
        ({"optimizer": {"name": "os", "lr": 0.1}}, "optimizer.name"),
        ({"aggregator": {"name": "os"}}, "aggregator.name"),
        ({"aggregator": {"name": "trimmed_mean", "trimm": 1}}, "aggregator.trimm"),
        ({"aggregator": {"name": "krum", "hostile": 2}, "tasks_per_round": 6}, "aggregator"),
        ({"uplink": {"codec": "zip"}}, "uplink.codec"),
        ({"norm_bound": "NaN"}, "norm_bound"),
        ({"norm_bound": 5e-324}, "norm_bound"),
        ({"deadlines": {"lease_s": 0}}, "deadlines.lease_s"),
        ({"deadlines": {"lease_s": 4}}, "deadlines.lease_s"),
        ({"deadlines": {"wave_s": 4}}, "deadlines.wave_s"),
        ({"deadlines": {"upload_s": 1}}, "deadlines.upload_s"),
        ({"step": WINDOWED, "replication": {"name": "fixed"}}, "step.window"),  # nothing is audited
        ({"step": WINDOWED | {"window": 4}, "audit": {"probability": 0.5}}, "step"),  # of all seven steps
        (AUDITED | {"verifier": {"name": "tolerance"}}, "step.window"),
        (AUDITED | {"replication": {"name": "adaptive"}}, "step.window"),
        ({"name": "a\0b"}, ""),
        ({"model": {"architecture": "mlp", "arguments": {"a\0": 1}}}, ""),
    ],
)
def test_a_bad_job_is_refused_by_the_name_of_its_field(service, changed: dict, field: str) -> None:  # type: ignore
    before = _count_jobs(service)
    body = problem(service.requester.post("/v1/jobs", json={**JOB, **changed}), 422)
    assert any(entry["field"].startswith(field) for entry in body["errors"]), body
    assert _count_jobs(service) == before, "nothing was changed"


def _count_jobs(service: Service) -> int:
    with service.context.reading() as reader:
        return reader.session.scalar(select(func.count()).select_from(Job)) or 0


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"step": WINDOWED | {"window": 4}, "audit": {"probability": 0.5}}, "step.window", "2 of 4 steps each make"),
        ({"step": WINDOWED, "replication": {"name": "fixed"}}, "step.window", "only audits use windows"),
        ({"overlap": 1, "sampling": "epochs", "min_tasks": 1, "tasks_per_round": 2}, "overlap", "no round leaves"),
        ({"verifier": {"name": "tolerance"}}, "verifier", "tolerance takes its thresholds"),
        ({"price": "0.5 EUR"}, "price", "'0.5 EUR' is no amount"),
        ({"price": {"name": "fixed", "amount": "0.1 units"}}, "price.amount", "'0.1 units' is no amount"),
        (
            {"step": {"rows": 4, "window": 2}},
            "step.window",
            "no such field; the fields are rows, microbatch, per_row, kind",
        ),
        ({"name": "a\0b"}, "", "a text has a NUL character"),
    ],
)
def test_a_rule_of_several_fields_names_the_one_to_change(service, changed: dict, field: str, said: str) -> None:  # type: ignore
    body = problem(service.requester.post("/v1/jobs", json={**JOB, **changed}), 422)
    assert body["errors"][0]["field"] == field
    assert said in body["errors"][0]["detail"]
    assert "Value error" not in str(body)
    assert not body["detail"].startswith(":")


@pytest.mark.parametrize("broken", [b'{ // mine\n"name": "a"}', b'{"name": "a",}', b"nonsense"])
def test_a_body_that_is_no_json_is_refused_with_its_place(service, broken: bytes) -> None:  # type: ignore[no-untyped-def]
    headers = {"Content-Type": "application/json"}
    body = problem(service.requester.post("/v1/jobs", content=broken, headers=headers), 422)
    assert body["detail"].startswith("the body is not JSON: ")
    assert " at character " in body["detail"]


def test_a_job_whose_audits_repeat_windows_is_taken(service) -> None:  # type: ignore[no-untyped-def]
    assert service.requester.post("/v1/jobs", json=JOB | AUDITED).status_code == 201


def test_a_request_without_a_token_gets_the_kind_of_token_in_its_problem(service) -> None:  # type: ignore[no-untyped-def]
    body = problem(service.anyone.post("/v1/jobs", json=JOB), 401)
    assert "Authorization: Bearer" in body["detail"]
    _, worker = service.worker()
    assert "only an API token" in problem(worker.post("/v1/jobs", json=JOB), 403)["detail"]
    assert "sign in" in problem(service.requester.post("/v1/work/poll", json={}), 403)["detail"]


def test_a_repeated_post_is_answered_alike_and_another_body_conflicts(service) -> None:  # type: ignore[no-untyped-def]
    key = {"Idempotency-Key": "once"}
    first = service.requester.post("/v1/jobs", json=JOB, headers=key)
    second = service.requester.post("/v1/jobs", json=JOB, headers=key)
    assert (second.status_code, second.json(), second.headers["location"]) == (
        201,
        first.json(),
        first.headers["location"],
    )
    problem(service.requester.post("/v1/jobs", json={**JOB, "rounds": 4}, headers=key), 409)


def test_cursors_walk_every_job_once(service, posted) -> None:  # type: ignore[no-untyped-def]
    made = {posted(name=f"job {index}")["id"] for index in range(5)}
    seen, cursor = [], None
    while True:
        answer = service.anyone.get("/v1/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        assert len(answer["items"]) <= 2
        seen += [job["id"] for job in answer["items"]]
        cursor = answer["next"]
        if cursor is None:
            break
    assert made <= set(seen)
    assert len(seen) == len(set(seen))
    problem(service.anyone.get("/v1/jobs?cursor=%00nonsense"), 422)
    nul = base64.urlsafe_b64encode(json.dumps([1.0, "a\0"]).encode()).decode()
    problem(service.anyone.get("/v1/jobs", params={"cursor": nul}), 422)


@pytest.mark.parametrize("place", [[0, 2**63 - 1, 0], [0, -2, 0], [-1, 0, 0], [0, 0, -1], [0.0, 0, 0], ["0", 0, 0]])
def test_a_ledger_s_cursor_names_a_block_that_the_chain_has(service, posted, place: list) -> None:  # type: ignore
    ledger = f"/v1/jobs/{posted()['id']}/ledger"
    for ours in ([0, service.context.ledger.height(), 0], [0, -1, 0]):
        assert service.anyone.get(ledger, params={"cursor": encode_cursor(ours)}).status_code == 200
    problem(service.anyone.get(ledger, params={"cursor": encode_cursor(place)}), 422)


@pytest.mark.parametrize(
    "said",
    [
        {"determinism_class": "a\0"},
        {"vouchers_for": ["a\0"]},
        {"jobs": ["a\0"]},
        {"reveals": [{"replica": "a\0", "fence": 1, "salt": "0x" + 64 * "0", "root": "blake3:" + 64 * "0"}]},
        {"given_up": [{"replica": "a", "fence": 1, "reason": "a\0"}]},
    ],
)
def test_a_poll_with_a_nul_character_is_refused(service, said: dict) -> None:  # type: ignore
    _, worker = service.worker()
    problem(worker.post("/v1/work/poll", json={"wait_s": 0, **said}), 422)


def test_an_absent_resource_is_a_404(service, posted) -> None:  # type: ignore[no-untyped-def]
    job = posted()["id"]
    for path in (
        "jobs/nowhere",
        f"jobs/{job}/tasks/none",
        f"jobs/{job}/parameters",
        "workers/0x" + "1" * 40,
        "nowhere",
    ):
        problem(service.requester.get(f"/v1/{path}"), 404)


def test_a_paused_job_cannot_be_a_draft(service, posted) -> None:  # type: ignore[no-untyped-def]
    job = posted()["id"]
    refused = problem(service.requester.post(f"/v1/jobs/{job}/pause"), 409)["detail"]
    assert "the job is draft: it cannot be paused" in refused
    cancelled = service.requester.post(f"/v1/jobs/{job}/cancel").json()
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "cancelled by its requester")
    assert service.requester.post(f"/v1/jobs/{job}/cancel").json()["state"] == "cancelled"


def test_events_come_in_order_and_resume_after_the_last_one_read(service, posted) -> None:  # type: ignore[no-untyped-def]
    job = posted()["id"]
    service.requester.post(f"/v1/jobs/{job}/cancel")
    text = service.anyone.get(f"/v1/jobs/{job}/events").text
    assert text.index("event: submitted") < text.index("event: cancelled")
    first = text.split("id: ")[1].split("\r\n")[0]
    later = service.anyone.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": first}).text
    assert "event: submitted" not in later
    assert "event: cancelled" in later


def test_blobs_are_taken_under_their_own_digest_only_and_come_by_range(service) -> None:  # type: ignore[no-untyped-def]
    data = bytes(range(256)) * 40
    digest = "blake3:" + blake3(data).hexdigest()
    other = "blake3:" + blake3(b"other").hexdigest()
    assert service.requester.put(f"/v1/blobs/{digest}", content=data).status_code == 201
    problem(service.requester.put(f"/v1/blobs/{other}", content=data), 422)
    problem(service.requester.get(f"/v1/blobs/{other}"), 404)
    problem(service.anyone.get(f"/v1/blobs/{digest}"), 401)
    _, worker = service.worker()
    assert worker.get(f"/v1/blobs/{digest}").content == data
    assert worker.head(f"/v1/blobs/{digest}").headers["content-length"] == str(len(data))
    part = worker.get(f"/v1/blobs/{digest}", headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, data[100:200])
    problem(worker.put(f"/v1/blobs/{digest}", content=data), 403)


def test_a_blob_of_many_blocks_is_the_one_that_was_sent(service) -> None:  # type: ignore[no-untyped-def]
    data = random.Random(0).randbytes(3 * BLOCK + 17)
    digest = "blake3:" + blake3(data).hexdigest()
    assert service.requester.put(f"/v1/blobs/{digest}", content=data).status_code == 201
    assert service.requester.get(f"/v1/blobs/{digest}").content == data


def test_a_body_that_is_too_large_is_refused_before_it_is_read(service) -> None:  # type: ignore[no-untyped-def]
    problem(service.requester.post("/v1/jobs", content=b" " * (2 << 20)), 413)

    def endless():  # type: ignore[no-untyped-def]
        for _ in range(64):
            yield b" " * 65536

    problem(service.requester.post("/v1/jobs", content=endless()), 413)


def test_the_openapi_names_every_route_with_its_problems(service) -> None:  # type: ignore[no-untyped-def]
    openapi = service.anyone.get("/openapi.json").json()
    assert "/v1/work/poll" in openapi["paths"]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            told = operation["responses"]
            assert {"429", "500", "503"} <= told.keys(), (method, path)
            assert "default" not in told, (method, path)
            assert not {"parameters", "requestBody"} & operation.keys() or told.keys() & {"404", "422"}, (method, path)
    assert "HTTPValidationError" not in openapi["components"]["schemas"]
    assert service.anyone.get("/docs").status_code == 200


def test_health_and_readiness(service) -> None:  # type: ignore[no-untyped-def]
    assert service.anyone.get("/v1/health").json() == {"status": "ok"}
    assert service.anyone.get("/v1/ready").json() == {"status": "ok", "database": "ok", "blobs": "ok", "chain": "ok"}


def test_a_re_warm_that_is_not_named_is_the_usual_one(service: Service) -> None:
    def rewarm(steps: int, optimizer: str = "adamw", **named: int) -> int:
        inner = {"name": optimizer, "lr": 0.1}
        local = {"kind": "local", "rows": 4, "steps": steps, "optimizer": inner} | named
        job = service.requester.post("/v1/jobs", json={**JOB, "step": local}).json()["id"]
        with service.context.reading() as reader:
            return int(reader.get_one(Job, job).spec["step"].get("rewarm", 0))

    assert [rewarm(steps) for steps in (1, 2, 7, 15, 500)] == [0, 0, 2, 5, 5]
    assert (rewarm(15, rewarm=0), rewarm(15, rewarm=3)) == (0, 3)
    assert (rewarm(15, "muon"), rewarm(15, "sgd"), rewarm(15, "sgd", rewarm=3)) == (0, 0, 3)


def test_a_seed_that_is_not_named_is_drawn_so_that_equal_jobs_have_other_answers(service: Service) -> None:
    def seed(**named: int) -> int:
        job = service.requester.post("/v1/jobs", json={**JOB, **named}).json()["id"]
        with service.context.reading() as reader:
            return int(reader.get_one(Job, job).spec["seed"])

    assert "seed" not in JOB
    assert seed() != seed()
    assert seed(seed=0) == 0


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"{}", "text/plain", "the body came as text/plain: send it with Content-Type: application/json"),
        (b"name=a", "application/x-www-form-urlencoded", "the body came as application/x-www-form-urlencoded: send it"),
        (b"[]", "application/json", "the body is no JSON object"),
        (b'"name"', "application/json; charset=utf-8", "the body is no JSON object"),
    ],
)
def test_a_body_of_another_content_type_is_refused_with_its_reason(
    service: Service, body: bytes, kind: str, said: str
) -> None:
    refused = service.requester.post("/v1/jobs", content=body, headers={"Content-Type": kind})
    assert (refused.status_code, refused.json()["detail"][: len(said)]) == (422, said)


def test_bytes_under_another_digest_are_refused_with_their_own(service: Service) -> None:
    refused = service.requester.put(f"/v1/blobs/blake3:{'0' * 64}", content=b"x")
    assert (refused.status_code, refused.json()["detail"][:18]) == (422, "the bytes are blak")


@pytest.mark.parametrize(
    ("changed", "errors", "said"),
    [
        ({"tags": ["%"] * 300}, 100, "300 faults: tags.0: a tag is one word"),
        ({"tags": ["%"] * 3000}, 1, "3000 faults"),
        ({"price": "x" * 100_000}, 1, "price: no amount"),
        ({"evaluation": {"partition": "x" * 100_000}}, 1, "evaluation.partition: String should have at most 200"),
    ],
)
def test_a_refusal_is_short_however_much_is_wrong(
    service: Service, changed: dict[str, object], errors: int, said: str
) -> None:
    answer = service.requester.post("/v1/jobs", json={**JOB, **changed})
    assert answer.status_code == 422
    assert len(answer.content) < 20_000
    assert len(answer.json()["errors"]) == errors
    assert said in answer.json()["detail"]
