"""Celery's processes merge rounds in parts, and some are killed in the middle: the bits are those of one process."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from contracts.deployment import Deployment
from contracts.local import LocalChain
from tests.databases import Postgres
from tests.e2e.cluster import Cluster, Process, finished
from tests.lanes import FULL
from tests.patience import dawdle, wait_until
from tests.processes import free_port

pytestmark = FULL

JOB: dict[str, Any] = {
    "name": "in parts",
    "model": {"architecture": "mlp", "arguments": {"hidden": [2048, 1536]}},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "adamw", "lr": 0.001, "clip": 0.5},
    "rounds": 3,
    "tasks_per_round": 2,
    "replication": {"name": "fixed", "replicas": 1, "max_replicas": 1},
    "price": "1000000000",
    "seed": 7,
}
"""Of 3.3 million parameters: four shards, and as many parts of each kind."""
HELD = """
SELECT count(*) FROM merge_parts p JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted
AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('parts ' || p.id, 0) WHERE p.result IS NULL
"""
"""How many parts are being done."""


@pytest.fixture
def cluster(tmp_path: Path, postgres: Postgres, anvil: LocalChain, deployment: Deployment) -> Iterator[Cluster]:
    database = postgres.new()
    made = Cluster(tmp_path, database, anvil.url, deployment, MERGE_SPREAD="0", MERGE_PART=str(4 << 20))
    yield made
    made.close()
    postgres.drop(database)


def test_processes_that_merge_in_parts_are_killed_and_the_digest_is_that_of_one(cluster: Cluster) -> None:
    cluster.redis()
    port = free_port()
    door = cluster.api(port)
    queue = [cluster.celery("worker", "--concurrency", "2") for _ in range(2)]
    beat = cluster.celery("beat")
    for index in range(2):
        cluster.worker(f"worker-{index}", port)
    requester = cluster.requester(port)
    with psycopg.connect(cluster.database, autocommit=True) as database:
        job = _post(requester)
        for _ in range(2):
            assert _kill_amid_a_part(database, queue) > 0
        in_parts = finished(requester, job)
        wait_until(lambda: _count(database, "SELECT count(*) FROM merge_parts") == 0, "no part is left")
    assert [process.stop() for process in (*queue, beat, door)] == [0] * 4
    cluster.api(port, stages="embedded")
    alone = finished(requester, _post(requester))
    assert in_parts["parameters"] == alone["parameters"]


def _kill_amid_a_part(database: psycopg.Connection, queue: list[Process]) -> int:
    """Stops all processes that do parts until one is in the middle of a part, and kills them; returns how many were."""

    def killed() -> int:
        if not _count(database, HELD):
            dawdle(0.002)
            return 0
        children = [child for process in queue for child in process.children()]
        for child in children:
            os.kill(child, signal.SIGSTOP)
        held = _count(database, HELD)
        for child in children:
            os.kill(child, signal.SIGKILL if held else signal.SIGCONT)
        return held

    return wait_until(killed, "a part", meanwhile=lambda: None)


def _count(database: psycopg.Connection, query: str) -> int:
    ((number,),) = database.execute(query).fetchall()  # type: ignore[arg-type]
    return int(number)


def _post(requester: httpx.Client) -> str:
    return str(requester.post("/v1/jobs", json=JOB).raise_for_status().json()["id"])
