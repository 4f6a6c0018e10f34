"""A served market learns from real auditors of two classes how far honest answers may deviate."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from gradmarket import Market, TrainingJob
from gradmarket.auditor import Auditor, Machine, open_auditor
from gradmarket.cli import app
from gradmarket.client import RequesterClient as Requester
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service
from gradmarket.market.features.tolerance import MOST, RUNS, Evidence
from gradmarket.market.rules.verifiers.tolerance import sort_classes
from requester.features.tolerance import calibrations
from requester.settings import RequesterSettings
from requester.store.session import open_engine, sessions_of
from requester.store.tables import Job as JobRow
from requester.store.work import begin_work
from tests.lanes import FULL
from tests.patience import wait_until

pytestmark = FULL

TASKS = 2
"""The other runs are taken for known: each costs two workers and two auditors a step."""


def rows() -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(256, 64, generator=generator), torch.arange(256) % 10)


def network() -> nn.Module:
    """A LayerNorm adds its weights' gradients up by thread: one and two threads differ on every CPU."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.ReLU(), nn.Linear(96, 10))


@pytest.fixture
def another_worker(served: Service, tmp_path: Path) -> Iterator[None]:
    """Two vote."""
    children = DemoProcesses(tmp_path / "logs")
    try:
        folder = ["--market", served.place.url, "--data", str(tmp_path / "worker")]
        children.start("another worker", ["-m", "gradmarket", "worker", "run", *folder])
        yield
    finally:
        children.end()


def store_runs(served: Service, job: TrainingJob, classes: tuple[str, str]) -> None:
    """As earlier runs leave it that agreed to the bit: all that is seen to deviate is seen here."""
    wait_until(lambda: job.state == "running", "its family, which it has once it is published")
    names = ("loss", "0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")
    engine = open_engine(RequesterSettings(data=served.data).database_url)
    with begin_work(sessions_of(engine)) as work:
        family, now = calibrations.family_of(work.get_one(JobRow, job.id)), time.time()
        row = calibrations.lock_calibration(work, family, classes, now)
        calibrations.store_evidence(work, row, Evidence(RUNS - TASKS, dict.fromkeys(names, 0.0)), now)
    engine.dispose()


def work(job: TrainingJob, *auditors: Auditor) -> list[list[bool]]:
    """Runs the auditors until the job is over and none has work; returns of each task whether it was to calibrate."""
    done: list[list[bool]] = [[] for _ in auditors]

    def idle() -> bool:
        ended = job.state == "finished"
        found = [auditor.turn() for auditor in auditors]
        for list_, each in zip(done, found, strict=True):
            list_ += [] if each is None else [each.calibrates]
        return ended and not any(found)

    wait_until(idle)
    return done


def test_real_auditors_of_two_classes_give_a_threshold(
    market: Market, served: Service, another_worker: None, tmp_path: Path
) -> None:
    job = market.train(
        network(), nn.CrossEntropyLoss(), rows(), optimizer={"name": "sgd", "lr": 0.1}, rows=128, rounds=1,
        tasks_per_round=TASKS, price="0.01 GRAD", verifier={"name": "tolerance"}, audit={"probability": 1.0},
        replication={"name": "fixed", "replicas": 2, "max_replicas": 2},
    )  # fmt: skip
    token = served.place.token
    with (
        Requester(served.place.url, token) as there,
        open_auditor("own", there, token, Machine(tmp_path / "own")) as own,
        open_auditor("wide", there, token, Machine(tmp_path / "wide", threads=2)) as wide,
    ):
        classes = sort_classes(own.determinism_class, wide.determinism_class)
        store_runs(served, job, classes)
        assert work(job, own, wide) == [[False] * TASKS, [True] * TASKS]
        (found,) = there.calibration(job.id).pairs
    assert (found.classes, found.state, found.runs) == (classes, "calibrated", RUNS)
    assert max(tensor.largest for tensor in found.tensors) > 1e-9
    assert all(1e-7 < tensor.threshold < MOST for tensor in found.tensors)
    assert len({task.task for task in found.tasks}) == TASKS
    assert all(one != other for one, other in (task.roots for task in found.tasks))
    shown = CliRunner().invoke(app, ["job", "calibration", job.id, "--market", served.place.url])
    assert shown.exit_code == 0
    assert f"calibrated: {RUNS} runs" in shown.output
    assert "0.weight" in shown.output
