"""A private job on a served market whose rounds are summed by secure aggregation, by real workers that are killed."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from torch import nn

from gradmarket import Market
from gradmarket.demo.service import Service
from tests.lanes import FULL
from tests.patience import wait_until
from worker import wallet

pytestmark = FULL

EXAMPLES = Path(__file__).parents[2] / "examples"
HOLDERS, ROUNDS = 5, 2


@pytest.fixture(scope="module")
def example(served: Service) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GRADMARKET_DATA", str(served.data))
        yield runpy.run_path(str(EXAMPLES / "holders.py"))


class Holders:
    """The workers beside the holders' rows."""

    def __init__(self, folder: Path, market: str, job: str) -> None:
        self._folder, self._market, self._job = folder, market, job
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for number in range(HOLDERS):
            place = self._folder / f"holder-{number}"
            command = [sys.executable, "-m", "gradmarket", "worker", "run", "--market", self._market]
            command += ["--data", str(place), "--dataset", str(place / "rows"), "--for", self._job]
            with (place / "log").open("ab") as log:
                self._running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def kill(self) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()
        self._running.clear()


def paid(served: Service, job: str) -> dict[str, int]:
    told = httpx.get(f"{served.place.url}/v1/jobs/{job}/workers").json()["items"]
    return {one["address"]: one["accepted"] for one in told if int(one["earned"])}


def test_five_holders_train_and_are_killed_in_the_middle(
    example: dict[str, Any], served: Service, market: Market, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    job = example["post"](market, model, tmp_path, ROUNDS, HOLDERS, True, seed=1, deadlines={"lease_s": 600})
    holders = Holders(tmp_path, served.place.url, job.id)
    holders.start()
    try:
        secrets = tmp_path / "holder-0" / "held"
        wait_until(lambda: list(secrets.rglob("secure/*.json")))
        holders.kill()
        assert list(secrets.rglob("secure/*.json")), "killed while a round was summed"
        holders.start()
        job.watch()
    finally:
        holders.kill()
    done = market.job(job.id)
    assert done.state == "finished"
    assert done.metrics["accuracy"] > 0.2, "a guess is at a tenth; these are two rounds"
    names = {wallet.load_wallet(tmp_path / f"holder-{number}", None).address for number in range(HOLDERS)}
    earned = paid(served, job.id)
    assert set(earned) <= names
    assert sum(earned.values()) >= ROUNDS * (HOLDERS - 1)
    rounds = httpx.get(f"{served.place.url}/v1/jobs/{job.id}/rounds").json()["items"]
    assert [one["loss"] for one in rounds] == [None] * ROUNDS
