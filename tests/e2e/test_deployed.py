"""Two API processes, Celery workers, beat, Redis and PostgreSQL serve a job: the bits are those of one process."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from contracts.deployment import Deployment
from contracts.local import LocalChain
from tests.databases import Postgres
from tests.e2e.cluster import Cluster, Process, children, fetch_job, finished
from tests.lanes import FULL
from tests.patience import wait_until
from tests.processes import free_port, is_running
from tests.town import ALONE

ROUNDS, TASKS, REPLICAS = 6, 2, 3
JOB: dict[str, Any] = {
    "name": "short",
    "model": {"architecture": "mlp", "arguments": {"hidden": [32]}},
    "data": {"ready": "digits"},
    "step": {"rows": 64, "microbatch": 32},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "rounds": ROUNDS,
    "tasks_per_round": TASKS,
    "price": "1000000000",
    "seed": 7,
    "deadlines": {"lease_s": 90, "wave_s": 90, "upload_s": 90},
}


@pytest.fixture
def cluster(tmp_path: Path, postgres: Postgres, anvil: LocalChain, deployment: Deployment) -> Iterator[Cluster]:
    database = postgres.new()
    made = Cluster(tmp_path, database, anvil.url, deployment)
    yield made
    made.close()
    postgres.drop(database)


def test_a_job_runs_over_a_queue_and_postgresql(cluster: Cluster) -> None:
    cluster.redis()
    port = free_port()
    door, stage, beat = cluster.api(port), cluster.celery("worker", "--concurrency", "1"), cluster.celery("beat")
    cluster.worker("worker", port)
    requester = cluster.requester(port)
    ended = finished(requester, _post(requester, rounds=1, tasks_per_round=1, replication=ALONE))
    assert (ended["accepted"], ended["costs"]["earned"]) == (1, "1000000000")
    assert [process.stop() for process in (stage, beat, door)] == [0] * 3


@FULL
def test_a_job_on_many_processes_survives_what_befalls_them_with_the_bits_of_one(cluster: Cluster) -> None:
    ports = (free_port(), free_port())
    redis, doors = cluster.redis(), [cluster.api(port) for port in ports]
    stages = [cluster.celery("worker", "--concurrency", "1") for _ in range(2)]
    beat = cluster.celery("beat")
    for index, port in enumerate((*ports, ports[0])):
        cluster.worker(f"worker-{index}", port)
    requester = cluster.requester(ports[1])
    job = _post(requester)

    _kill_at_publishing(stages)
    _wait_for_rounds(requester, job, 2)
    assert not any(_maps_torch(process.pid) for process in stages)
    stages[1].kill()
    _wait_for_rounds(requester, job, 4)
    redis.kill()
    cluster.redis()
    disturbed = finished(requester, job)
    wait_until(lambda: _all_back(fetch_job(requester, job)["costs"]), "what nobody earned is taken back")
    assert _transactions(cluster) == {"mined"}, "nobody sent what another had sent"

    assert [process.stop() for process in (stages[0], beat, *doors)] == [0] * 4
    for port in ports:
        cluster.api(port, stages="embedded")
    undisturbed = finished(requester, _post(requester))
    assert disturbed["parameters"] == undisturbed["parameters"]
    assert disturbed["accepted"] == undisturbed["accepted"] == ROUNDS * TASKS * REPLICAS


def _kill_at_publishing(stages: Sequence[Process]) -> None:
    """`kill -9` of the child process that asks a runner just now; its runner ends with it."""
    found: list[tuple[int, int]] = []

    def publishing() -> bool:
        found.extend((child, runner) for stage in stages for child in stage.children() for runner in children(child))
        return bool(found)

    wait_until(publishing, "a worker publishes the job")
    child, runner = found[0]
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not is_running(runner), "the runner ends too, be it after its imports")


def _transactions(cluster: Cluster) -> set[str]:
    with psycopg.connect(cluster.database) as connection:
        return {state for (state,) in connection.execute("SELECT DISTINCT state FROM transactions")}


def _post(requester: httpx.Client, **changed: Any) -> str:
    return str(requester.post("/v1/jobs", json=JOB | changed).json()["id"])


def _wait_for_rounds(requester: httpx.Client, job: str, count: int) -> None:
    def closed() -> bool:
        now = fetch_job(requester, job)
        assert now["state"] in ("draft", "awaiting_funds", "running"), now["reason"]
        return int(now["accepted"]) >= count * TASKS * REPLICAS

    wait_until(closed, f"{count} rounds are over")


def _maps_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def _all_back(costs: dict[str, str]) -> bool:
    return int(costs["deposited"]) == int(costs["earned"]) + int(costs["refunded"])
