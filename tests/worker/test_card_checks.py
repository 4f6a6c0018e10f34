"""The start of a card step by step, as doctor and `worker check` show it; a compiled stand-in is the driver."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from gradmarket.compute.card_checks import check_cards
from gradmarket.compute.machine import Unfit
from tests.kit.stand_in_card import install_driver, make_nodes
from tests.lanes import FULL
from tests.worker.fake_market import FakeMarket, Server
from worker.cli import app
from worker.features import machine_check


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make_nodes(tmp_path / "root")


def test_a_machine_without_a_card_has_no_fault(tmp_path: Path) -> None:
    (one,) = check_cards(tmp_path)
    assert (one.name, one.fix) == ("card", "")
    assert one.detail.startswith("none")


def test_a_card_without_its_library_is_wrong(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(root))
    (one,) = check_cards(root)
    assert one.detail.startswith("no driver: ")
    assert "install NVIDIA's driver" in one.fix


@FULL
def test_the_refused_path_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", install_driver(root / "lib", root, 'MORE_PATH="/etc/shadow"'))
    driver, confinement = check_cards(root)
    assert driver.detail == "580.159.04, starts with 2 cards"
    assert "cuInit says CUDA_ERROR_OPERATING_SYSTEM (304)" in confinement.detail
    assert confinement.detail.endswith("refused was the path /etc/shadow")
    assert confinement.fix


@FULL
@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch would start the stand-in")
def test_each_card_is_shown_with_its_child_s_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", install_driver(root / "lib", root))
    driver, confinement, first, second = check_cards(root)
    assert not driver.fix
    assert confinement.detail == "the driver starts under it"
    assert first.detail.startswith("NVIDIA H100 80GB HBM3, 80.0 GiB, free 70.0 GiB, sm_90; its child: torch ")
    assert second.detail.startswith("NVIDIA H200, 141.0 GiB, free 5.0 GiB, sm_90; its child: torch ")
    assert "is built without CUDA" in first.detail
    assert first.fix


def test_worker_check_shows_what_would_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = CliRunner().invoke(app, ["check", "--device", "cpu", "--json"])
    assert shown.exit_code == 0, shown.output
    machine = json.loads(shown.output.splitlines()[-1])
    assert machine["device"] == "cpu"
    assert machine["class"].startswith("cpu/")
    assert 1e8 < machine["flops"] < 1e14
    assert machine["memory"] > 0


def check_market(server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(machine_check, "measure_speed", lambda _runner: 1e9)
    shown = CliRunner().invoke(app, ["check", "--device", "cpu", "--market", server.url, "--json"])
    assert shown.exit_code == 0, shown.output
    told: dict[str, str] = json.loads(shown.output.splitlines()[-1])
    return told


def test_worker_check_shows_what_a_markets_jobs_pay_this_machine(
    server: Server, fake_market: FakeMarket, shared_child: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = check_market(server, monkeypatch)
    assert (told["price"], told["why_not"]) == ("7", "")
    assert int(told["hourly"]) > 0
    assert "an hour at most" in told["text"]
    assert not fake_market.asked, "it asks for no work"


def test_worker_check_names_why_a_job_does_not_fit_this_machine(
    server: Server, shared_child: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADMARKET_WORKER_MAX_FLOPS", "10")
    assert Unfit.TOO_MANY_FLOPS in check_market(server, monkeypatch)["why_not"]
