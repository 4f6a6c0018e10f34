"""`/v1/ready` names exactly the parts that are really broken; a SIGTERM ends everything in order."""

import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.local import LocalChain
from tests.lanes import FULL
from tests.ops.served import Served, served
from tests.ops.signed_in import signed_in
from tests.patience import wait_for_end, wait_until

JOB: dict[str, Any] = {
    "name": "drained",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"rows": 16},
    "optimizer": {"lr": 0.1},
    "rounds": 1,
    "replication": {"name": "fixed"},
    "price": "1000000000",
}


@pytest.fixture
def service(own_anvil: LocalChain, tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "data", own_anvil.url) as made:
        yield made


def comes_to(service: Served, *broken: str) -> None:
    """Waits until it names these parts and no other; it tries them at most once a second."""

    def read_readiness() -> tuple[int, set[str]]:
        answer = service.ready()
        return answer.status_code, wrong(answer.json())

    wait_until(lambda: read_readiness() == (503 if broken else 200, set(broken)), read_readiness)


def measured(service: Served) -> set[str]:
    return set(service.http().get("/metrics").text.splitlines())


def wrong(parts: dict[str, str]) -> set[str]:
    return {name for name, said in parts.items() if name != "status" and said != "ok"}


def test_each_part_that_breaks_is_named_and_forgiven_when_it_is_back(service: Served, own_anvil: LocalChain) -> None:
    assert service.ready().json() == {"status": "ok", "database": "ok", "blobs": "ok", "chain": "ok"}
    signed_in(service.url)
    assert "Warning" not in service.log.read_text()  # of a library, about itself

    blobs, aside = service.data / "blobs", service.data / "elsewhere"
    blobs.rename(aside)
    comes_to(service, "blobs")
    aside.rename(blobs)
    comes_to(service)

    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # as a full disk
    comes_to(service, "database", "blobs")
    assert service.http(service.token).post("/v1/jobs", json=JOB).status_code == 503
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    comes_to(service)
    assert service.http(service.token).post("/v1/jobs", json=JOB).status_code == 201

    os.kill(own_anvil.pid, 9)
    comes_to(service, "chain")
    assert httpx.get(f"{service.url}/v1/health").status_code == 200

    for name in ("gradmarket.sqlite-wal", "gradmarket.sqlite-shm", "gradmarket.sqlite"):
        path = service.data / name
        with path.open("r+b") as file:
            file.write(b"\xff" * path.stat().st_size)
    comes_to(service, "database", "chain")


@FULL
def test_sigterm_answers_the_polls_ends_the_streams_and_finishes_the_running_stage(service: Served) -> None:
    worker = service.http(signed_in(service.url))
    answers: list[httpx.Response] = []
    ask = {"determinism_class": "cpu", "capacity": 1, "wait_s": 50}
    poll = threading.Thread(target=lambda: answers.append(worker.post("/v1/work/poll", json=ask)))
    poll.start()
    requester = service.http(service.token)
    first = requester.post("/v1/jobs", json=JOB).json()["id"]
    follow = threading.Thread(target=lambda: answers.append(service.http().get(f"/v1/jobs/{first}/events")))
    follow.start()
    wait_until(lambda: {"gradmarket_long_polls_open 1.0", "gradmarket_event_streams_open 1.0"} <= measured(service))
    job = requester.post("/v1/jobs", json=JOB).json()["id"]
    wait_until(lambda: service.list_events("stage begins", stage="publish", job=job))
    assert service.end() == 0, service.log.read_text()[-3000:]
    wait_for_end(poll, follow)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(service.list_events("stage ended", stage="publish", job=job)) == 1
    assert not service.list_events("stage failed")
    with sqlite3.connect(service.data / "gradmarket.sqlite") as database:
        states = database.execute("SELECT state FROM jobs").fetchall()
    assert [state for (state,) in states if state != "draft"]
