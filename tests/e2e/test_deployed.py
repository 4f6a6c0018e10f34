"""Two API processes, Celery workers, beat, Redis and PostgreSQL serve a job: the bits are those of one process."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster import Cluster, free_port, told, wait_for
from databases import Postgres

from gradmarket.contracts.deployment import Deployment
from gradmarket.contracts.local import LocalChain

ROUNDS, TASKS, REPLICAS = 10, 2, 3
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
    "deadlines": {"lease_s": 30, "wave_s": 30, "upload_s": 30},
}


@pytest.fixture
def cluster(tmp_path: Path, postgres: Postgres, anvil: LocalChain, deployment: Deployment) -> Iterator[Cluster]:
    database = postgres.new()
    made = Cluster(tmp_path, database, anvil.url, deployment)
    yield made
    made.close()
    postgres.drop(database)


@pytest.mark.timeout(600)
def test_a_job_on_many_processes_survives_what_befalls_them_with_the_bits_of_one(cluster: Cluster) -> None:
    first, second = free_port(), free_port()
    redis, doors = cluster.redis(), [cluster.api(first), cluster.api(second)]
    stages = [cluster.celery("worker", "--concurrency", "1") for _ in range(2)]
    beat = cluster.celery("beat")
    workers = [cluster.worker(f"worker-{index}", port) for index, port in enumerate((first, first, second))]
    requester = cluster.requester(first)
    job = _post(requester)

    _wait_for_rounds(requester, job, 2)
    assert not any(_maps_torch(process.pid) for process in stages)
    os.kill(stages[0].children()[0], signal.SIGKILL)
    _wait_for_rounds(requester, job, 4)
    stages[1].kill()
    _wait_for_rounds(requester, job, 6)
    redis.kill()
    cluster.redis()
    disturbed = _finished(requester, job)

    assert [process.stop() for process in (stages[0], beat)] == [0, 0]
    assert [door.stop() for door in doors] == [0, 0]
    cluster.api(first, stages="embedded")
    workers.append(cluster.worker("worker-3", first))
    undisturbed = _finished(requester, _post(requester))
    assert disturbed["parameters"] == undisturbed["parameters"]
    assert disturbed["accepted"] == undisturbed["accepted"] == ROUNDS * TASKS * REPLICAS
    wait_for(lambda: _all_back(told(requester, job)["costs"]), 60, "what nobody earned is taken back")


def _post(requester: httpx.Client) -> str:
    return str(requester.post("/v1/jobs", json=JOB).json()["id"])


def _wait_for_rounds(requester: httpx.Client, job: str, count: int) -> None:
    def closed() -> bool:
        now = told(requester, job)
        assert now["state"] in ("draft", "awaiting_funds", "running"), now["reason"]
        return int(now["accepted"]) >= count * TASKS * REPLICAS

    wait_for(closed, 120, f"{count} rounds are over")


def _finished(requester: httpx.Client, job: str) -> dict[str, Any]:
    open_states = ("draft", "awaiting_funds", "running")
    wait_for(lambda: told(requester, job)["state"] not in open_states, 180, "the job's end")
    now = told(requester, job)
    assert now["state"] == "finished", now["reason"]
    return now


def _maps_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def _all_back(costs: dict[str, str]) -> bool:
    return int(costs["deposited"]) == int(costs["earned"]) + int(costs["refunded"])
