"""`kill -9` of the requester at random moments: it goes on, the money is right, and the final bits are the same."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts import deployment
from contracts.ledger import Ledger
from contracts.local import LocalChain
from tests.lanes import FULL
from tests.patience import PATIENCE_S, dawdle, wait_until
from tests.processes import answers, free_port

pytestmark = FULL

KILLS = int(os.environ.get("GRADMARKET_TEST_KILLS", "2"))
"""`make test-deep` kills it more often."""
JOB: dict[str, Any] = {
    "name": "short",
    "model": {"architecture": "mlp", "arguments": {"hidden": [160]}},  # its AdamW is too large to be stored every round
    "data": {"ready": "digits"},
    "step": {"rows": 64, "microbatch": 32},
    "optimizer": {"name": "adamw", "lr": 0.01, "schedule": {"name": "cosine", "warmup": 2}, "clip": 1.0},
    "rounds": min(16, 2 * KILLS + 2),
    "replication": {"name": "fixed"},
    "tasks_per_round": 2,
    "price": "1000000000",
    "seed": 7,
    "deadlines": {"lease_s": 90, "wave_s": 90, "upload_s": 90},
}


class Service:
    """`gradmarket serve` as a process on a fixed port, to be killed and started again."""

    def __init__(self, data: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = data
        self.start()
        token = (data / "keys" / "token").read_text().strip()
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S)

    def start(self) -> None:
        command = [sys.executable, "-m", "gradmarket", "serve", "--data", str(self.data), "--port", str(self.port)]
        with (self.data.parent / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: self._answers(), "the service answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.data.parent / "serve.log").read_text()[-3000:]
        return answers(f"{self.url}/v1/health")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def job(self, job_id: str) -> dict[str, Any]:
        return self.http.get(f"/v1/jobs/{job_id}").json()

    def post(self) -> str:
        return str(self.http.post("/v1/jobs", json=JOB).json()["id"])

    def moves(self, job_id: str) -> None:
        """Waits until the job gets on again (or has ended), so that the next kill meets it at work."""
        before = self.job(job_id)

        def moved() -> bool:
            now = self.job(job_id)
            return now["state"] == "finished" or (now["state"], now["accepted"]) != (
                before["state"],
                before["accepted"],
            )

        wait_until(moved, f"the job gets on from {before['state']}, {before['accepted']} accepted")

    def finished(self, job_id: str) -> dict[str, Any]:
        wait_until(lambda: self.job(job_id)["state"] not in ("draft", "awaiting_funds", "running"), "the end")
        return self.job(job_id)


@contextmanager
def workers(service: Service, count: int) -> Iterator[None]:
    folder = service.data.parent
    command = [sys.executable, "-m", "gradmarket", "worker", "run", "--market", service.url, "--json"]
    running = []
    for index in range(count):
        with (folder / f"worker-{index}.log").open("wb") as log:
            data = str(folder / f"worker-{index}")
            running.append(subprocess.Popen([*command, "--data", data], stdout=log, stderr=log))
    try:
        yield
        for worker in running:
            worker.terminate()
        assert [worker.wait(PATIENCE_S) for worker in running] == [0] * count, "a worker leaves in peace"
    finally:
        for worker in running:
            worker.kill()
            worker.wait()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path / "data")
    yield made
    made.kill()
    chain = LocalChain.find_running_chain(made.data / "chain")
    assert chain is not None
    chain.stop()


def test_killed_at_random_moments_it_goes_on_with_equal_books_and_equal_bits(service: Service) -> None:
    moments = random.Random(20)
    with workers(service, 3):
        undisturbed = service.finished(service.post())
        assert undisturbed["state"] == "finished", undisturbed["reason"]
        killed = service.post()
        for kill in range(KILLS):
            dawdle(moments.uniform(0.0, 0.3))
            service.kill()
            service.start()
            if kill:
                service.moves(killed)
        disturbed = service.finished(killed)
    assert disturbed["state"] == "finished", disturbed["reason"]
    assert disturbed["parameters"] == undisturbed["parameters"]
    assert disturbed["accepted"] == undisturbed["accepted"] == JOB["rounds"] * JOB["tasks_per_round"] * 3
    for job in (undisturbed, disturbed):
        _check_books(service, job["id"])


def _check_books(service: Service, job_id: str) -> None:
    """Every worker has redeemed and released: the deposit is paid or back, to the unit, on the chain itself."""
    wait_until(lambda: _all_back(service.job(job_id)["costs"]), "the rest is taken back")
    job = service.job(job_id)
    chain = LocalChain.find_running_chain(service.data / "chain")
    assert chain is not None
    ledger = Ledger(chain.connect(), deployment.load_deployment(service.data / "deployment.json"))
    paid = 0
    for worker in service.http.get(f"/v1/jobs/{job_id}/workers").json()["items"]:
        account = ledger.account(job["chain_job"], worker["address"])
        assert str(account.withdrawn * int(job["unit"])) == worker["earned"]
        paid += account.withdrawn * int(job["unit"])
    costs = job["costs"]
    assert int(costs["earned"]) == paid == job["accepted"] * int(costs["price"])
    assert int(costs["deposited"]) == paid + int(costs["refunded"])


def _all_back(costs: dict[str, str]) -> bool:
    return int(costs["deposited"]) == int(costs["earned"]) + int(costs["refunded"])
