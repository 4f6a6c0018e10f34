"""The route of a round's secure aggregation: its senders, and the length of a message before it is parsed."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from select import select
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from gradmarket.market.features.secure_sums.job_sum import most_json
from gradmarket.market.terms import ReplicaState
from requester.features.secure_sums import secure_messages
from requester.features.windows import state_upload
from requester.store.tables import Replica
from tests.api.api_service import Service
from tests.api.test_authorisation import with_a_replica
from tests.api.test_holders import private
from tests.patience import PATIENCE_S

Post = Callable[..., dict[str, Any]]
MADE_UP = ["0x" + f"{number:02x}" * 20 for number in range(1, 5)]


@pytest.fixture
def leased(service: Service, posted: Post) -> tuple[httpx.Client, str]:
    """A holder's client, and the path of its replica's aggregation."""
    address, worker = service.worker()
    data = private(address, *MADE_UP, secure_aggregation={"may_collude": 1, "may_drop": 1})
    job = posted(data=data, tasks_per_round=5, min_tasks=4)["id"]
    _, replica = with_a_replica(service, job, address)
    with service.context.begin() as work:
        row = work.get_one(Replica, replica)
        assert row.state == ReplicaState.AGREE
        row.state = ReplicaState.LEASED
    return worker, f"/v1/work/aggregations/{replica}/0/1"


def framed(body: bytes, length: int | None = None) -> bytes:
    return (len(body) if length is None else length).to_bytes(4, "big") + body


def test_a_message_that_is_too_long_is_refused_before_it_is_read(leased: tuple[httpx.Client, str]) -> None:
    worker, path = leased
    refused = worker.post(path, content=framed(b"{", most_json(5) + 1))
    assert refused.status_code == 413
    assert str(most_json(5)) in refused.json()["detail"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"holder": 9000}', b"\xff", b'{"holder": 1e999}'])
def test_a_message_that_is_none_is_refused_in_a_sentence(leased: tuple[httpx.Client, str], body: bytes) -> None:
    worker, path = leased
    refused = worker.post(path, content=framed(body))
    assert refused.status_code == 422
    assert "the message of step 1 cannot be read" in refused.json()["detail"]


def test_a_body_that_ends_early_or_goes_on_is_refused(leased: tuple[httpx.Client, str]) -> None:
    worker, path = leased
    assert worker.post(path, content=framed(b"{}", 10)).status_code == 400
    assert worker.post(path, content=framed(b"{}") + b"more").status_code == 413


@contextmanager
def half_sent(worker: httpx.Client, method: str, path: str, body: bytes) -> Iterator[socket.socket]:
    """A connection on which a byte of the body is still to come."""
    url, token = worker.base_url, worker.headers["Authorization"]
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 80), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode() + body)
        yield connection


@pytest.mark.parametrize("what", ["vector", "state"])
def test_a_worker_sends_a_vector_or_a_state_by_one_request_at_a_time(
    service: Service, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each takes its length on the disk, and there are many connections."""
    _, worker = service.worker()
    door = partial(secure_messages.StepDoor, job="j", most_json=10, vector=1000)
    monkeypatch.setattr(secure_messages, "find_step_grant", lambda _context, asked: door(asked))
    monkeypatch.setattr(state_upload, "load_wanted_state", lambda *_asked: SimpleNamespace(most_bytes=1000))
    sent = {
        "vector": ("POST", "/v1/work/aggregations/r/0/3", framed(b"{}") + bytes(999)),
        "state": ("PUT", "/v1/work/states/blake3:" + "0" * 64, bytes(999)),
    }
    with half_sent(worker, *sent[what]) as first, half_sent(worker, *sent[what]) as second:
        answered, *_ = select([first, second], [], [], 20)
        assert [one.recv(4096)[:12] for one in answered] == [b"HTTP/1.1 409"], "either may be the earlier one"


def test_an_aggregation_refuses_callers_without_its_lease(leased: tuple[httpx.Client, str], service: Service) -> None:
    _, path = leased
    _, other = service.worker()
    assert other.post(path, content=framed(b"{}")).status_code == 404
    assert service.anyone.post(path, content=framed(b"{}")).status_code == 401
    assert service.requester.post(path, content=framed(b"{}")).status_code == 403


def test_there_are_five_steps(leased: tuple[httpx.Client, str]) -> None:
    worker, path = leased
    for step in ("0", "6", "x"):
        assert worker.post(f"{path[:-1]}{step}", content=framed(b"{}")).status_code == 422


def test_a_job_that_cannot_be_summed_is_refused_by_the_fields_name(service: Service) -> None:
    spec = {
        "name": "p", "model": {"architecture": "mlp"}, "step": {"rows": 32}, "optimizer": {"lr": 0.1}, "rounds": 1,
        "price": "1000000000", "tasks_per_round": 4,
        "data": private(*MADE_UP, secure_aggregation={"may_collude": 3, "may_drop": 0}),
    }  # fmt: skip
    refused = service.requester.post("/v1/jobs", json=spec)
    assert refused.status_code == 422
    assert "data.secure_aggregation" in refused.text
    assert "one holder alone" in refused.text
