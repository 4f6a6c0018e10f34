"""Real workers of two determinism classes vote on one task: other last bits, one quorum, and proofs of it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sqlalchemy import select
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from gradmarket import Market, TrainingJob
from gradmarket.cli import app
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service
from gradmarket.market.features.tolerance import RUNS, Evidence
from gradmarket.market.rules.verifiers.tolerance import sort_classes
from requester.features.tolerance import calibrations
from requester.settings import RequesterSettings
from requester.store.session import open_engine, sessions_of
from requester.store.tables import Job as JobRow
from requester.store.tables import Worker
from requester.store.work import begin_work, open_reader
from tests.lanes import FULL
from tests.patience import wait_until

pytestmark = FULL

NAMES = ("loss", "0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")


@pytest.fixture
def wide_worker(served: Service, tmp_path: Path) -> Iterator[Path]:
    """The folder of a second worker, with two threads."""
    children, folder = DemoProcesses(tmp_path / "logs"), tmp_path / "wide"
    try:
        where = ["--market", served.place.url, "--data", str(folder)]
        children.start("wide worker", ["-m", "gradmarket", "worker", "run", *where], {"GRADMARKET_WORKER_THREADS": "2"})
        yield folder
    finally:
        children.end()


def posted(market: Market) -> TrainingJob:
    """A LayerNorm adds its weights' gradients up by thread: one and two threads differ on every CPU."""
    generator = torch.Generator().manual_seed(5)
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.ReLU(), nn.Linear(96, 10))
    rows = TensorDataset(torch.randn(256, 64, generator=generator), torch.arange(256) % 10)
    return market.train(
        network, nn.CrossEntropyLoss(), rows, optimizer={"name": "sgd", "lr": 0.1}, rows=128, rounds=1,
        price="0.01 GRAD", verifier={"name": "tolerance"}, audit={"probability": 1e-9},
        replication={"name": "fixed", "replicas": 2, "max_replicas": 2},
    )  # fmt: skip


def until_it_is(job: TrainingJob, state: str) -> None:
    wait_until(lambda: job.state == state, lambda: job.state)


def calibrate(served: Service, job: TrainingJob) -> set[str]:
    """As trusted runs of the two workers' classes leave it that were 10^-7 apart; the classes."""
    engine = open_engine(RequesterSettings(data=served.data).database_url)

    def two() -> set[str] | None:
        with open_reader(sessions_of(engine)) as reader:
            known = reader.session.scalars(select(Worker.determinism_class).where(Worker.determinism_class != ""))
            found = set(known)
        return found if len(found) == 2 else None

    classes = wait_until(two) or set()
    with begin_work(sessions_of(engine)) as work:
        family, now = calibrations.family_of(work.get_one(JobRow, job.id)), time.time()
        row = calibrations.lock_calibration(work, family, sort_classes(*classes), now)
        calibrations.store_evidence(work, row, Evidence(RUNS, dict.fromkeys(NAMES, 1e-7)), now)
    engine.dispose()
    return classes


def test_real_workers_of_two_classes_share_a_task_and_prove_it(
    market: Market, served: Service, wide_worker: Path
) -> None:
    job = posted(market)
    until_it_is(job, "running")
    classes = calibrate(served, job)
    until_it_is(job, "finished")
    name = f"{job.id}-0-0-0"
    with served.place.market() as there:
        one, other = there.task(job.id, name).replicas
    assert {one.determinism_class, other.determinism_class} == classes
    assert one.root != other.root
    assert {one.state, other.state} == {"payable"}
    check = ["verdict", "check", job.id, name, "--market", served.place.url]
    proven = CliRunner().invoke(app, check)
    assert (proven.exit_code, proven.output.split(":")[0]) == (0, "proven"), proven.output
