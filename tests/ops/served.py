"""`gradmarket serve` as a process of its own, to be asked, broken and ended."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.patience import PATIENCE_S, wait_until
from tests.processes import answers


class Served:
    def __init__(self, data: Path, rpc: str | None, process: subprocess.Popen[bytes], log: Path) -> None:
        self.data, self.rpc, self.process, self.log = data, rpc, process, log
        self.url = ""

    @property
    def token(self) -> str:
        return (self.data / "keys" / "token").read_text().strip()

    def http(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def ready(self) -> httpx.Response:
        return httpx.get(f"{self.url}/v1/ready", timeout=PATIENCE_S, verify=False)

    def lines(self) -> list[dict[str, Any]]:
        """Returns its log as JSON, without a line it is still writing."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def list_events(self, event: str, **fields: object) -> list[dict[str, Any]]:
        wanted = {"event": event, **fields}
        return [line for line in self.lines() if wanted.items() <= line.items()]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextmanager
def served(data: Path, rpc: str | None, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Serves on a free port, and is killed at the end of the block if it is still there.

    Where no `rpc` is given it starts a chain of its own, which outlives it.
    """
    data.mkdir(parents=True, exist_ok=True)
    (data / "url").unlink(missing_ok=True)
    log = data.with_name(data.name + ".log")
    command = [sys.executable, "-m", "gradmarket", "serve", "--data", str(data), "--port", "0", "--json"]
    command += ["--rpc", rpc] if rpc else []
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GRADMARKET_")}
    settings = {"GRADMARKET_LOG": "DEBUG", "GRADMARKET_AUDITOR": "none", **(environment or {})}
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=clean | settings)
    made = Served(data, rpc, process, log)
    try:
        wait_until(lambda: process.poll() is not None or (data / "url").exists(), log.read_text)
        assert process.poll() is None, log.read_text()[-3000:]
        made.url = (data / "url").read_text().strip()
        wait_until(lambda: answers(f"{made.url}/v1/ready"), log.read_text)
        yield made
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
