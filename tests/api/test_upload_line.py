"""What `gradmarket data upload` shows while it sends: a line on a terminal, nothing in a pipe; and after Ctrl-C."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.client import RequesterClient
from gradmarket.client.transport import CHUNK
from gradmarket.market.terms import blob_digest
from requester.store.identities import OWN
from tests.api.api_service import Service


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A folder whose one partition goes in several requests."""
    drawn = np.random.default_rng(3)
    rows, folder = tmp_path / "rows.npz", tmp_path / "packed"
    np.savez(rows, x=drawn.random((30_000, 16), np.float32), y=drawn.integers(0, 2, 30_000))
    assert (
        CliRunner()
        .invoke(app, ["data", "pack", str(rows), "--rows-per-partition", "30000", "-o", str(folder)])
        .exit_code
        == 0
    )
    return folder


def upload_on_a_terminal(service: Service, packed: Path, *more: str) -> str:
    """Returns what standard error shows there; standard output is a pipe."""
    near, far = pty.openpty()
    command = [sys.executable, "-m", "gradmarket", "data", "upload", str(packed), "--market", service.url, *more]
    environment = {**os.environ, "GRADMARKET_TOKEN": service.token, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=far, env=environment) as process:
        os.close(far)
        shown = bytearray()
        with suppress(OSError):  # Linux's answer once the other end is closed
            while more_shown := os.read(near, 1 << 16):
                shown += more_shown
        printed, _ = process.communicate()
    os.close(near)
    assert process.returncode == 0, shown
    assert b"blake3:" in printed
    return shown.decode()


def test_a_terminal_shows_how_far_it_came(service: Service, packed: Path) -> None:
    (file,) = packed.glob("*.safetensors")
    data = file.read_bytes()
    with suppress(ConnectionError), service.context.blobs.continued(OWN, blob_digest(data), 0) as incoming:
        incoming.write(data[: 16 * CHUNK])
        raise ConnectionError
    shown = upload_on_a_terminal(service, packed)
    assert f"{file.name} from 1.0 MB on" in shown
    assert "2.2/2.2 MB" in shown


def test_json_shows_nothing(service: Service, packed: Path) -> None:
    assert upload_on_a_terminal(service, packed, "--json") == ""


def test_a_pipe_gets_nothing(service: Service, packed: Path) -> None:
    arguments = ["data", "upload", str(packed), "--market", service.url, "--token", service.token]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stderr) == (0, "")


def test_ctrl_c_has_what_to_do(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_given: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(RequesterClient, "upload", interrupt)
    done = CliRunner().invoke(app, ["data", "upload", str(packed), "--market", "http://127.0.0.1:1"])
    assert (done.exit_code, done.stderr) == (
        130,
        "Interrupted: the same command within an hour goes on where it broke off.\n",
    )
