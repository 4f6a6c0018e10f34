"""`make demo` as a whole: its checks hold, and nothing stays behind at any of its ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.demo import kept_demos
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.demo_run import run_demo
from gradmarket.demo.service import start_service, stop_chain
from gradmarket.demo.workers import PRICE
from tests.e2e.processes_left import wait_until_left
from tests.lanes import FULL
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path]:
    """Returns the report, the output, and the demo's own folder."""
    folder, printed = tmp_path_factory.mktemp("demo"), StringIO()
    return run_demo(Console(file=printed, width=120), within=folder), printed.getvalue(), folder


@FULL
def test_everything_that_the_demo_checks_holds(played: tuple[dict[str, Any], str, Path]) -> None:
    report, printed, _ = played
    assert report["ok"], printed
    assert report["accuracy"] >= 0.95
    assert "kept apart by payout" in printed


@FULL
def test_honest_workers_have_their_pay_on_chain_and_cheats_nothing(played: tuple[dict[str, Any], str, Path]) -> None:
    workers = played[0]["workers"]
    assert sorted(one["behaviour"] for one in workers) == ["honest", "honest", "honest", "noise", "sign_flip"]
    for one in workers:
        accepted = one["accepted"] if one["behaviour"] == "honest" else 0
        assert int(one["balance"]) == int(one["earned"]) == accepted * PRICE
    assert sum(one["rejected"] for one in workers if one["behaviour"] == "honest") == 0


@FULL
def test_the_sums_of_the_report_agree(played: tuple[dict[str, Any], str, Path]) -> None:
    report = played[0]
    escrow = {name: int(amount) for name, amount in report["escrow"].items()}
    assert escrow["deposited"] == escrow["paid"] + escrow["refunded"]
    assert escrow["paid"] == report["accepted"] * PRICE
    assert report["accepted"] == sum(one["accepted"] for one in report["workers"])
    assert report["accepted"] == sum(batch["gradients"] for batch in report["settlements"])
    assert report["tasks"] == report["uploads"] == 2 * report["rounds"]


@FULL
def test_nothing_is_left_running_or_lying_about(played: tuple[dict[str, Any], str, Path]) -> None:
    folder = played[2]
    wait_until_left(folder)
    assert list(folder.iterdir()) == []


@FULL
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing_either(stop: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradmarket", "demo", "--json"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "serves job" in line:
                demo.send_signal(stop)
                break
        out, _ = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode not in (0, -stop)
    assert out == ""
    wait_until_left(tmp_path)
    assert not list(tmp_path.glob("gradmarket-demo-*"))


@FULL
def test_a_service_that_does_not_start_fails_the_demo(tmp_path: Path) -> None:
    """An Anvil that ends at once: the demo prints it with the end of the log, and ends with 2."""
    hollow = tmp_path / "bin"
    hollow.mkdir()
    (hollow / "anvil").write_text("#!/bin/sh\nexit 3\n")
    (hollow / "anvil").chmod(0o755)
    environment = os.environ | {"TMPDIR": str(tmp_path), "PATH": f"{hollow}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "gradmarket", "demo", "--report", str(tmp_path / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert "serve ended with" in done.stderr
    assert "Anvil does not start" in done.stderr
    assert not (tmp_path / "report.json").exists()
    wait_until_left(tmp_path)


@FULL
def test_the_report_is_plain_json(played: tuple[dict[str, Any], str, Path]) -> None:
    assert json.loads(json.dumps(played[0])) == played[0]


@FULL
@pytest.mark.parametrize("first_by_hand", [False, True])
def test_a_demo_that_was_left_up_is_stopped_by_its_command_and_leaves_nothing(
    first_by_hand: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: service and chain get a signal at once, as by `kill SERVICE CHAIN`; no chain starts again."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"{kept_demos.PREFIX}1"
    children = DemoProcesses(folder / "logs")
    try:
        served = start_service(children, folder / "service")
        kept_demos.mark_kept(folder)
        refused = CliRunner().invoke(app, ["chain", "down", "--data", str(served.data)])
        assert f"kill {served.child.process.pid}" in refused.output
        if first_by_hand:
            chain = served.chain
            assert chain is not None
            os.kill(served.child.process.pid, signal.SIGTERM)
            os.kill(chain.pid, signal.SIGTERM)
            served.child.process.wait(PATIENCE_S)
            wait_until_left(tmp_path)
        printed = CliRunner().invoke(app, ["demo", "stop"])
    finally:
        children.end()
        stop_chain(folder / "service")
    assert printed.output == f"stopped; {folder} is deleted\n"
    assert list(tmp_path.iterdir()) == []
    wait_until_left(tmp_path)
    assert CliRunner().invoke(app, ["demo", "stop"]).output == "no demo is up\n"


def test_a_demo_that_still_runs_is_not_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{kept_demos.PREFIX}1").mkdir()
    assert json.loads(CliRunner().invoke(app, ["demo", "stop", "--json"]).stdout) == {"stopped": []}
    assert len(list(tmp_path.iterdir())) == 1
