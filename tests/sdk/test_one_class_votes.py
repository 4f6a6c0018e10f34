"""Real workers of one and two threads vote bit by bit where arithmetic is reproducible, and any processor audits."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from gradmarket import Market
from gradmarket.auditor import Machine, open_auditor
from gradmarket.cli import app
from gradmarket.client import RequesterClient as Requester
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service
from gradmarket.market.terms import REPRODUCIBLE
from tests.lanes import FULL
from tests.patience import wait_until

pytestmark = FULL


@pytest.fixture
def wide_worker(served: Service, tmp_path: Path) -> Iterator[None]:
    """A second worker, with two threads."""
    children, folder = DemoProcesses(tmp_path / "logs"), tmp_path / "wide"
    try:
        where = ["--market", served.place.url, "--data", str(folder)]
        children.start("wide worker", ["-m", "gradmarket", "worker", "run", *where], {"GRADMARKET_WORKER_THREADS": "2"})
        yield
    finally:
        children.end()


def test_workers_of_one_and_two_threads_give_one_root(
    market: Market, served: Service, wide_worker: None, tmp_path: Path
) -> None:
    """A LayerNorm adds its weights' gradients up by thread: natively one and two threads differ on every CPU."""
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.ReLU(), nn.Linear(96, 10))
    rows = TensorDataset(torch.randn(256, 64), torch.arange(256) % 10)
    job = market.train(
        network, nn.CrossEntropyLoss(), rows, optimizer={"name": "sgd", "lr": 0.1}, rows=128, rounds=1,
        price="0.01 GRAD", arithmetic="reproducible", audit={"probability": 1.0},
        replication={"name": "fixed", "replicas": 2, "max_replicas": 2},
    )  # fmt: skip
    token = served.place.token
    with (
        Requester(served.place.url, token) as there,
        open_auditor("wide", there, token, Machine(tmp_path / "auditor", threads=4)) as auditor,
    ):
        roots = dict[str, str]()

        def audit_until_finished() -> bool:
            done = auditor.turn()
            if done is not None:
                roots[done.task] = done.root
            return done is None and job.state == "finished"

        wait_until(audit_until_finished, lambda: job.state)
    name = f"{job.id}-0-0-0"
    with served.place.market() as place:
        one, other = place.task(job.id, name).replicas
    assert one.root == other.root == roots[name]
    assert {one.state, other.state} == {"payable"}
    assert {one.determinism_class, other.determinism_class} == {REPRODUCIBLE}
    check = ["verdict", "check", job.id, name, "--market", served.place.url]
    proven = CliRunner().invoke(app, check)
    assert (proven.exit_code, proven.output.split(":")[0]) == (0, "proven"), proven.output
