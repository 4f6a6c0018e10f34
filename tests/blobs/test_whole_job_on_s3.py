"""A job to its end with its blobs in a bucket: payloads and downloads pass the service by, pay is as ever."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gradmarket.commands.following import follow_job
from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service
from gradmarket.demo.workers import DemoWorker
from gradmarket.market.signing import checksum_address
from tests.bucket import KEYS
from tests.lanes import FULL

JOB: dict[str, Any] = {
    "name": "digits",
    "model": {"architecture": "mlp", "arguments": {"hidden": [16]}},
    "data": {"ready": "digits"},
    "step": {"kind": "gradient", "rows": 64},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 2,
    "tasks_per_round": 2,
    "replication": {"name": "fixed", "replicas": 1, "max_replicas": 1},
    "separation": [],
    "price": str(10**16),
}


def work(children: DemoProcesses, served: Service, folder: Path, store: str) -> DemoWorker:
    payout = checksum_address("0x" + secrets.token_hex(20))
    options = ["--market", served.place.url, "--payout", payout, "--data", str(folder)]
    command = ["-m", "gradmarket", "worker", "run", "--json", *options]
    child = children.start("worker", command, {"GRADMARKET_WORKER_STORES": f'["{store}"]'})
    return DemoWorker("honest", payout, child)


@pytest.fixture
def children(tmp_path: Path) -> Iterator[DemoProcesses]:
    started = DemoProcesses(tmp_path / "logs")
    yield started
    started.end()
    service.stop_chain(tmp_path / "service")


@FULL
@pytest.mark.parametrize("hidden", [pytest.param(16, id="one put", marks=FULL), pytest.param(20_000, id="two parts")])
def test_a_job_ends_well_with_its_blobs_in_a_bucket(
    s3: str, bucket: str, children: DemoProcesses, tmp_path: Path, hidden: int
) -> None:
    settings = {"GRADMARKET_BLOBS": "s3", "GRADMARKET_S3_ENDPOINT": s3, "GRADMARKET_S3_BUCKET": bucket, **KEYS}
    served = service.start_service(children, tmp_path / "service", settings)
    with served.place.market() as market:
        job = market.submit(JOB | {"model": {"architecture": "mlp", "arguments": {"hidden": [hidden]}}}).id
        worker = work(children, served, tmp_path / "worker", s3)
        ended = follow_job(market, job, lambda _job: children.check(), lambda *_away: children.check())
        assert ended.state == "finished", ended.reason
        assert ended.accepted == 4
        stats = market.stats(job)
        assert (stats.uploads, stats.accepted) == (4, 4)
        assert market.download(job, tmp_path / "parameters") == ended.parameters
        taken = httpx.get(f"{served.place.url}/v1/jobs/{job}/parameters", headers=_token(served))
        assert taken.status_code == 307
        assert taken.headers["location"].startswith(f"{s3}/{bucket}/")
    assert "Could not put" not in worker.child.log.read_text()
    assert not list((tmp_path / "service").rglob("blobs/*"))
    assert not list((tmp_path / "service").rglob("unfinished/*"))


def _token(served: Service) -> dict[str, str]:
    return {"authorization": f"Bearer {served.place.token}"}
