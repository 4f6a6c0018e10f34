"""Every route and its callers: nobody, the requester, the worker that owns the row, another worker."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest
from blake3 import blake3
from eth_utils.crypto import keccak

from gradmarket.market.terms import ReplicaState, RoundState, TaskState
from gradmarket.market.wire.framing import frame_poll_request
from gradmarket.market.wire.poll import PollRequest
from requester.store import identities
from requester.store.tables import Job, Replica, Round, Task
from tests.offers import ALONE, offer
from tests.patience import wait_until

DATA = b"the matrix"
DIGEST = "blake3:" + blake3(DATA).hexdigest()
JOB: dict[str, Any] = {
    "name": "matrix",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"lr": 0.1},
    "rounds": 1,
    "replication": {"name": "fixed"},
    "price": "1000000000",
}
EVERYBODY = (200, 200, 200, 200)
POLL = {"determinism_class": "cpu", "capacity": 0, "wait_s": 0}

EXPECTED: dict[tuple[str, str], tuple[int, int, int, int]] = {
    # nobody, requester, worker, other worker
    ("GET", "/v1/session/nonce"): EVERYBODY,
    ("POST", "/v1/session"): (422, 422, 422, 422),  # a message that nobody signed
    ("GET", "/v1/blobs/{digest}"): (401, 200, 200, 200),
    ("HEAD", "/v1/blobs/{digest}"): (401, 200, 200, 200),
    ("PUT", "/v1/blobs/{digest}"): (401, 201, 403, 403),
    ("GET", "/v1/blobs/{digest}/pieces"): (401, 404, 404, 404),  # a blob of one piece
    ("GET", "/v1/blobs/{digest}/received"): (401, 200, 200, 200),  # each its own, here none
    ("POST", "/v1/jobs"): (401, 201, 403, 403),
    ("POST", "/v1/tokens"): (401, 201, 403, 403),
    ("GET", "/v1/tokens"): (401, 200, 403, 403),
    ("DELETE", "/v1/tokens/{name}"): (401, 404, 403, 403),  # none of this name
    ("GET", "/v1/tokens/{name}/spending"): (401, 404, 403, 403),
    ("PUT", "/v1/tokens/{name}/spending"): (401, 404, 403, 403),
    ("GET", "/v1/prices"): (401, 200, 403, 403),
    ("POST", "/v1/webhooks"): (401, 201, 403, 403),
    ("GET", "/v1/webhooks"): (401, 200, 403, 403),
    ("POST", "/v1/webhooks/{webhook_id}/ping"): (401, 404, 403, 403),  # none of this id
    ("DELETE", "/v1/webhooks/{webhook_id}"): (401, 404, 403, 403),
    ("GET", "/v1/jobs"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}"): EVERYBODY,
    ("POST", "/v1/jobs/{job_id}/pause"): (401, 409, 403, 403),  # a draft cannot be paused, but by its requester
    ("POST", "/v1/jobs/{job_id}/resume"): (401, 409, 403, 403),
    ("POST", "/v1/jobs/{job_id}/fund"): (401, 200, 403, 403),
    ("POST", "/v1/jobs/{job_id}/cancel"): (401, 200, 403, 403),
    ("POST", "/v1/jobs/{job_id}/extend"): (401, 201, 403, 403),
    ("PATCH", "/v1/jobs/{job_id}"): (401, 200, 403, 403),
    ("GET", "/v1/jobs/{job_id}/checkpoints"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/rounds"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/rounds/{number}/updates"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/rounds/{number}/claims"): (409, 409, 409, 409),  # the job goes on
    ("PUT", "/v1/jobs/{job_id}/rounds/{number}/claims"): (401, 409, 409, 409),
    ("GET", "/v1/jobs/{job_id}/tasks"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/tasks/{task_id}"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/verdicts"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/workers"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/payments"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/stats"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/ledger"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/audits"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/calibration"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/trust"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/coverage"): (401, 404, 404, 404),  # not published yet
    ("GET", "/v1/jobs/{job_id}/log"): (404, 404, 404, 404),  # no leaf yet
    ("GET", "/v1/jobs/{job_id}/log/leaves"): EVERYBODY,
    ("GET", "/v1/jobs/{job_id}/log/leaves/{kind}"): (404, 404, 404, 404),
    ("GET", "/v1/jobs/{job_id}/log/consistency"): EVERYBODY,
    ("POST", "/v1/audits/claim"): (401, 200, 403, 403),
    ("PUT", "/v1/audits/{task_id}"): (401, 404, 403, 403),  # none is drawn
    ("PUT", "/v1/audits/{task_id}/sketch"): (401, 404, 403, 403),  # none was claimed
    ("PUT", "/v1/audits/{task_id}/planted"): (401, 404, 403, 403),
    ("PUT", "/v1/audits/{task_id}/seal"): (401, 404, 403, 403),  # none is drawn
    ("PUT", "/v1/audits/{task_id}/opening"): (401, 404, 403, 403),
    ("PUT", "/v1/audits/payloads/{task_id}"): (401, 404, 403, 403),  # none is owed
    ("GET", "/v1/audits/hearings"): (401, 200, 403, 403),
    ("POST", "/v1/audits/hearings"): (401, 422, 403, 403),  # an answer without its headers
    ("GET", "/v1/jobs/{job_id}/parameters"): (401, 404, 404, 404),  # none yet
    ("GET", "/v1/jobs/{job_id}/events"): EVERYBODY,
    ("POST", "/v1/work/poll"): (401, 403, 200, 200),
    ("POST", "/v1/work/answers"): (401, 403, 200, 200),
    ("GET", "/v1/work/payloads/{replica}/{fence}"): (401, 403, 200, 200),  # another's answer is empty
    ("POST", "/v1/work/payloads/{replica}/{fence}/parts"): (401, 403, 404, 404),  # blobs are on disk
    ("GET", "/v1/work/states"): (401, 403, 200, 200),
    ("PUT", "/v1/work/states/{digest}"): (401, 403, 404, 404),  # no audit asks for it
    ("GET", "/v1/work/hearings"): (401, 403, 200, 200),
    ("POST", "/v1/work/hearings"): (401, 403, 422, 422),  # an answer without its headers
    ("PUT", "/v1/work/holdings/{job_id}"): (401, 403, 404, 404),  # the job is not private
    ("POST", "/v1/work/aggregations/{replica}/{attempt}/{step}"): (401, 403, 404, 404),  # nor summed under masks
    ("GET", "/v1/workers/{address}"): EVERYBODY,
    ("POST", "/v1/workers/{address}/withdrawal"): (401, 422, 422, 422),  # the payout key did not sign it
    ("GET", "/v1/workers/{address}/earnings"): (401, 403, 200, 403),
    ("GET", "/v1/workers/{address}/vouchers"): (401, 403, 200, 403),
    ("GET", "/v1/chain"): EVERYBODY,
    ("POST", "/chain"): EVERYBODY,
    ("GET", "/v1/health"): EVERYBODY,
    ("GET", "/v1/ready"): EVERYBODY,
    ("GET", "/metrics"): EVERYBODY,
}
PAGES: dict[tuple[str, str], tuple[int, int, int, int]] = {
    ("GET", "/"): EVERYBODY,
    ("GET", "/errors"): EVERYBODY,
    ("GET", "/page/market"): EVERYBODY,
    ("GET", "/runs"): EVERYBODY,
    ("GET", "/page/runs"): EVERYBODY,
    ("GET", "/jobs/{job_id}"): EVERYBODY,
    ("GET", "/page/jobs/{job_id}"): EVERYBODY,
    ("GET", "/page/jobs/{job_id}/coverage"): (401, 200, 200, 200),
    ("GET", "/jobs/{job_id}/tasks/{task_id}"): EVERYBODY,
    ("GET", "/workers/{address}"): EVERYBODY,
    ("GET", "/submit"): EVERYBODY,
    ("POST", "/page/plan"): (401, 200, 403, 403),
    ("GET", "/operator"): EVERYBODY,
    ("GET", "/page/operator"): (401, 200, 403, 403),
}
"""Routes of the web page, outside the API's description."""
SEALED = {
    "auditor": "me",
    "run": 0,
    "signer": "0x" + "11" * 20,
    "sealed": "0x" + "22" * 32,
    "signature": "0x" + "00" * 65,
}
SKETCHED = {
    "auditor": "me",
    "determinism_class": "cpu",
    "run": 0,
    "root": DIGEST,
    "sketch": {"w": "0x" + "00" * 256},
}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/tokens"): {"json": {"name": "ci", "role": "submit"}},
    ("PUT", "/v1/tokens/{name}/spending"): {"json": {"a_day": None}},
    ("POST", "/v1/webhooks"): {"json": {"url": "https://1.1.1.1/hook"}},
    ("POST", "/v1/session"): {"json": {"message": "I am he", "signature": "0x" + "00" * 65}},
    ("PUT", "/v1/blobs/{digest}"): {"content": DATA},
    ("POST", "/v1/jobs"): {"json": JOB},
    ("POST", "/page/plan"): {"json": JOB},
    ("POST", "/chain"): {"json": {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}},
    ("POST", "/v1/jobs/{job_id}/extend"): {"json": {"rounds": 1}},
    ("PATCH", "/v1/jobs/{job_id}"): {"json": {"tags": ["kept"]}},
    ("POST", "/v1/jobs/{job_id}/fund"): {"json": {"amount": "1000000000"}},
    ("GET", "/v1/jobs/{job_id}/events"): {"params": {"follow": "false"}},
    ("GET", "/v1/jobs/{job_id}/log/leaves/{kind}"): {"params": {"about": "no-such-task", "size": 1}},
    ("GET", "/v1/jobs/{job_id}/log/consistency"): {"params": {"old": 0, "size": 0}},
    ("POST", "/v1/work/poll"): {"json": POLL},
    ("POST", "/v1/audits/claim"): {"json": {"auditor": "me", "determinism_class": "cpu"}},
    ("PUT", "/v1/jobs/{job_id}/rounds/{number}/claims"): {
        "json": {"number": 0, "digest": DIGEST, "signature": "0x" + "00" * 65}
    },
    ("PUT", "/v1/audits/{task_id}"): {"json": {"auditor": "me", "run": 0, "root": DIGEST}},
    ("PUT", "/v1/audits/{task_id}/sketch"): {"json": SKETCHED},
    ("PUT", "/v1/audits/{task_id}/planted"): {"json": {"auditor": "me", "run": 0, "root": DIGEST}},
    ("PUT", "/v1/audits/{task_id}/seal"): {"json": SEALED},
    ("PUT", "/v1/audits/{task_id}/opening"): {
        "json": {"auditor": "me", "run": 0, "root": DIGEST, "salt": "0x" + "11" * 32}
    },
    ("PUT", "/v1/audits/payloads/{task_id}"): {"content": DATA},
    ("GET", "/v1/audits/hearings"): {"params": {"signer": "0x" + "11" * 20}},
    ("POST", "/v1/workers/{address}/withdrawal"): {
        "json": {"payout": "0x" + "11" * 20, "nonce": 1, "signature": "0x" + "00" * 65}
    },
    ("PUT", "/v1/work/holdings/{job_id}"): {"json": {"rows": 10}},
    ("POST", "/v1/work/answers"): {"content": frame_poll_request(PollRequest(wait_s=0))},
}
DESCRIBED = {"/openapi.json", "/docs", "/redoc"}
BESIDES = DESCRIBED | {"/assets"} | {path for _, path in PAGES}
"""Routes of the description and of the web page."""


@dataclass(frozen=True)
class Scene:
    """A job with one task, whose payload is asked of `worker`; each request that is no question finds its own."""

    roles: tuple[httpx.Client, httpx.Client, httpx.Client, httpx.Client]
    places: Callable[[], dict[str, str]]
    standing: dict[str, str]


@pytest.fixture(scope="module")
def scene(service) -> Scene:  # type: ignore[no-untyped-def]
    address, worker = service.worker()
    _, other = service.worker()
    service.requester.put(f"/v1/blobs/{DIGEST}", content=DATA)

    def places() -> dict[str, str]:
        job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
        task, replica = with_a_replica(service, job, address)
        of_job = {"job_id": job, "task_id": task, "replica": replica, "fence": "1", "number": "0"}
        of_job |= {"attempt": "0", "step": "1", "kind": "offer"}
        return {"name": "nobody", "webhook_id": "0" * 16, "digest": DIGEST, "address": address} | of_job

    return Scene((service.anyone, service.requester, worker, other), places, places())


def with_a_replica(service, job: str, worker: str) -> tuple[str, str]:  # type: ignore[no-untyped-def]
    """Stores a task and a replica, with the fields that an upload is checked against; returns their ids."""
    now, root = service.context.clock(), "blake3:" + "0" * 64
    task = f"{job}-0-0-0"
    with service.context.begin() as work:
        work.get_one(Job, job).facts = {
            "layout": [{"name": "loss", "shape": [], "kind": "loss"}, {"name": "w", "shape": [4], "kind": "gradient"}],
            "counters": [],
            "flops": 1,
            "peak_bytes": 1,
            "memory": root,
        }
        work.add(
            Round(
                job_id=job,
                number=0,
                state=RoundState.OPEN,
                parameters=root,
                price=1,
                optimizer_state=root,
                opened_at=now,
            )
        )
        work.flush()
        work.add(
            Task(
                id=task,
                job_id=job,
                round=0,
                index=0,
                attempt=0,
                state=TaskState.UPLOADING,
                offer=offer(1),
                offer_digest=keccak(text=task),
                offer_signature=b"",
                secret=b"",
                wave_size=3,
                plan=ALONE,
                root=root,
                uploader=f"{task}-1",
                due_at=now + 60,
                created_at=now,
            )
        )
        work.flush()
        work.add(
            Replica(
                id=f"{task}-1",
                task_id=task,
                job_id=job,
                worker=worker,
                payout=worker,
                operator=worker,
                state=ReplicaState.AGREE,
                wave=0,
                fence=1,
                leased_at=now,
                lease_until=now + 60,
                root=root,
            )
        )
    return task, f"{task}-1"


@pytest.mark.parametrize("route", EXPECTED | PAGES, ids=" ".join)
def test_a_route_admits_its_roles_alone(scene: Scene, route: tuple[str, str]) -> None:
    method, path = route
    found = []
    for role in scene.roles:
        named = scene.standing if method == "GET" or "{" not in path else scene.places()
        ask = partial(role.request, method, path.format(**named), **BODIES.get(route, {}))
        found.append(wait_until(partial(_find_status, ask, may_be_busy=route in PAGES), route))
    assert tuple(found) == (EXPECTED | PAGES)[route]


def _find_status(ask: Callable[[], httpx.Response], may_be_busy: bool) -> int | None:
    """Returns the answer's status; None where the pages' share of a slow machine's time is used up just now."""
    status = ask().status_code
    return None if may_be_busy and status == 503 else status


def test_no_route_is_missing(service) -> None:  # type: ignore[no-untyped-def]
    documented = {
        (method.upper(), path)
        for path, methods in service.anyone.get("/openapi.json").json()["paths"].items()
        for method in methods
    }
    assert documented == EXPECTED.keys()


def test_no_route_is_hidden(service) -> None:  # type: ignore[no-untyped-def]
    documented = set(service.anyone.get("/openapi.json").json()["paths"])
    assert _paths(service.app.routes) - documented == BESIDES


def _paths(routes: list[Any]) -> set[str]:
    """Included routers keep their routes to themselves."""
    found = set()
    for route in routes:
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        if getattr(inner, "routes", None) and not hasattr(route, "endpoint"):
            found |= _paths(inner.routes)
        else:
            found.add(route.path)
    return found


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer nonsense", "Basic bm9ib2R5Og==", "bearer \u00e9".encode("latin-1"), "Token x"],
)
def test_a_token_of_no_use_is_nobody(service, header: str | bytes) -> None:  # type: ignore[no-untyped-def]
    assert service.anyone.post("/v1/work/poll", json=POLL, headers={"Authorization": header}).status_code == 401


def test_a_session_that_ran_out_is_nobody(service) -> None:  # type: ignore[no-untyped-def]
    with service.context.begin() as work:
        token = identities.issue_token(work, "worker", "0x" + "11" * 20, service.context.clock() - 1, 0.0)
    assert service.client(token).post("/v1/work/poll", json=POLL).status_code == 401
