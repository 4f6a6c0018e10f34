"""A private job on a served market: holders' workers train it, and each row is with its holder alone."""

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import nn

from gradmarket import Market
from gradmarket.demo.service import Service
from tests.lanes import FULL
from tests.patience import PATIENCE_S
from worker import wallet

EXAMPLES = Path(__file__).parents[2] / "examples"
HOLDERS = 3
LONG = {"lease_s": 600}
"""On a busy machine, too, each holder answers in every round."""


@pytest.fixture(scope="module")
def example(served: Service) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GRADMARKET_DATA", str(served.data))
        yield runpy.run_path(str(EXAMPLES / "holders.py"))


def contents(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def before(served: Service) -> dict[Path, bytes]:
    """Returns the blobs of other tests on the shared service: some publish whole datasets of these rows."""
    return contents(served.data, served.data.parent / "logs")


@pytest.fixture(scope="module")
def trained(
    example: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[Path, bytes],
    market: Market,
    served: Service,
) -> tuple[str, Path]:
    """The job's id, and the folder of its holders."""
    folder = tmp_path_factory.mktemp("holders")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    job = example["post"](market, model, folder, 8, HOLDERS, False, seed=1, deadlines=LONG)
    with example["workers"](folder, served.place.url, job.id, HOLDERS), print_trail_of_failure(served, folder, job.id):
        job.watch(timeout=PATIENCE_S)
    return job.id, folder


@contextmanager
def print_trail_of_failure(served: Service, folder: Path, job_id: str) -> Iterator[None]:
    """Prints the job, its tasks and the logs of its holders and of the service where the block raises."""
    try:
        yield
    except BaseException:
        for part in ("", "/tasks?limit=20&order=newest", "/rounds?limit=3", "/workers"):
            print(part, httpx.get(f"{served.place.url}/v1/jobs/{job_id}{part}").text)
        for log in (*folder.glob("holder-*/log"), *(served.data.parent / "logs").glob("*.log")):
            print(log, *log.read_text().splitlines()[-40:], sep="\n")
        raise


@FULL
def test_holders_train_and_are_paid_and_nobody_else_is(
    trained: tuple[str, Path], market: Market, served: Service
) -> None:
    job_id, folder = trained
    job = market.job(job_id)
    assert job.state == "finished"
    assert job.metrics["accuracy"] > 0.6, "a guess is at a tenth"
    paid = httpx.get(f"{served.place.url}/v1/jobs/{job_id}/workers").json()["items"]
    holders = {wallet.load_wallet(folder / f"holder-{number}", None).address for number in range(HOLDERS)}
    assert {one["address"] for one in paid if int(one["earned"])} == holders
    assert {one["accepted"] for one in paid} <= {8}


@FULL
def test_no_byte_of_a_row_left_its_holder(
    example: dict[str, Any], trained: tuple[str, Path], before: dict[Path, bytes], served: Service
) -> None:
    _, folder = trained
    theirs, own = example["digits"](HOLDERS)
    found = contents(served.data, served.data.parent / "logs")
    assert any(own[0][0].tobytes() in data for data in found.values()), "the requester's own rows are found so"
    written = [data for path, data in found.items() if data != before.get(path)]
    for x, _y in theirs:
        for row in x[:50]:
            distinct = row[np.flatnonzero(row)][:12].tobytes()
            assert not any(row.tobytes() in data or distinct in data for data in written)
    for number in range(HOLDERS):
        elsewhere = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "rows"]
        for path in elsewhere:
            assert theirs[number][0][0].tobytes() not in path.read_bytes(), path


@FULL
def test_no_route_serves_a_holders_answer(trained: tuple[str, Path], served: Service) -> None:
    job_id, _ = trained
    tasks = httpx.get(f"{served.place.url}/v1/jobs/{job_id}/tasks").json()["items"]
    roots = [task["root"] for task in tasks if task.get("root")]
    assert roots
    for token in (None, served.place.token):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        for root in roots[-3:]:
            assert httpx.get(f"{served.place.url}/v1/blobs/{root}", headers=headers).status_code in (401, 404)


@FULL
def test_a_worker_outside_the_list_gets_no_task(trained: tuple[str, Path], served: Service) -> None:
    """The floor's own worker, which has no dataset, was asked for no task."""
    job_id, _ = trained
    log = (served.data.parent / "logs" / "worker.log").read_text()
    assert f'"job": "{job_id}"' not in json.dumps([line for line in log.splitlines() if "Working on" in line])


def list_kept_files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"holder-*/{kind}/*"))


@FULL
def test_holders_keep_their_control_variates_and_their_row_uses(
    example: dict[str, Any], tmp_path: Path, market: Market
) -> None:
    """Two jobs, each with its own kind of local step, on the example's holders."""
    plain = example["LOCAL"]
    job = example["main"](3, HOLDERS, tmp_path / "a", seed=3, deadlines=LONG, step={**plain, "control_variates": True})
    assert market.job(job.id).state == "finished"
    assert len(list_kept_files(tmp_path / "a", "rounds")) == 2 * HOLDERS, "the two newest rounds of each"
    per_row = {"clip_norm": 1.0, "noise_multiplier": 4.0, "epsilon": 8.0, "delta": 1e-3}
    step = {"kind": "local", "rows": 32, "steps": 1, "optimizer": {"name": "sgd", "lr": 0.5}, "per_row": per_row}
    noised = market.job(example["main"](2, HOLDERS, tmp_path / "b", seed=4, deadlines=LONG, step=step).id)
    assert noised.state == "finished"
    assert [one.loss for one in noised.rounds()] == [None, None]
    told = [json.loads(path.read_text()) for path in list_kept_files(tmp_path / "b", "row-uses")]
    assert [one["steps"] for one in told] == [2] * HOLDERS


WORTH = {"name": "worth", "floor": "0.001 GRAD", "ceiling": "0.03 GRAD", "draws": 1}


@FULL
def test_holders_are_paid_by_worth_and_prove_all_of_it(
    example: dict[str, Any], tmp_path: Path, market: Market, served: Service
) -> None:
    """Real workers take both payments of an answer, and find no fault in their records of the market."""
    job = market.job(example["main"](3, HOLDERS, tmp_path, price=WORTH, seed=2, deadlines=LONG).id)
    assert job.state == "finished"
    listed = f"{served.place.url}/v1/jobs/{job.id}"
    payments = httpx.get(f"{listed}/payments").json()["items"]
    by_replica: dict[str, list[int]] = {}
    for line in payments:
        by_replica.setdefault(line["replica"], []).append(int(line["amount"]))
    assert len(by_replica) == 3 * HOLDERS
    assert {amounts[0] for amounts in by_replica.values()} == {10**15}
    over = [amount for amounts in by_replica.values() for amount in amounts[1:]]
    assert over
    assert max(over) <= 29 * 10**15
    assert sum(over) <= 3 * HOLDERS * 29 * 10**15 // 2
    paid = {one["address"]: int(one["earned"]) for one in httpx.get(f"{listed}/workers").json()["items"]}
    for number in range(HOLDERS):
        place = tmp_path / f"holder-{number}"
        own = sum(int(line["amount"]) for line in payments if line["worker"] == wallet.load_wallet(place, None).address)
        assert paid[wallet.load_wallet(place, None).address] == own
        command = [sys.executable, "-m", "gradmarket", "wallet", "verify", "--data", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "all is proven" in done.stdout + done.stderr
