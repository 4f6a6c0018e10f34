"""Commands of README and docs/howto/by-hand.md are run as they stand, on a port of their own, with a shorter job."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contracts.local import LocalChain
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.processes import answers, free_port

ROOT = Path(__file__).parents[2]
(MAKE,) = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
BY_HAND = (ROOT / "docs" / "howto" / "by-hand.md").read_text()
SERVE, WORKERS, JOB, CURL = re.findall(r"```sh\n(.*?)```", BY_HAND, re.S)
BOOKS = re.findall(r"```sh (?:ledger|verify)\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.S)
ALONE, HIRED = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def test_the_two_commands_are_targets_and_so_is_what_contributing_names() -> None:
    rules = re.findall(r"^([a-z0-9 -]+):", (ROOT / "Makefile").read_text(), re.M)
    targets = {target for rule in rules for target in rule.split()}
    prose = (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / "README.md").read_text()
    named = re.findall(r"`make ([a-z0-9-]+)", prose) + re.findall(r"^make ([a-z-]+)", MAKE, re.M)
    assert named
    assert MAKE.split("\n")[:2] == ["make demo", "make test"]
    assert set(named) <= targets


@FULL
def test_the_script_that_hires_is_the_one_that_trains_alone_but_for_ten_lines() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert float(done.stdout) < 1.5
    alone, hired = ([line for line in script.splitlines() if line.strip()] for script in (ALONE, HIRED))
    assert len([line for line in hired if line not in alone]) <= 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").mkdir()
    job = json.loads((ROOT / "examples" / "digits.json").read_text()) | {"rounds": 2, "stop": []}
    (tmp_path / "examples" / "digits.json").write_text(json.dumps(job))
    return tmp_path


@FULL
def test_by_hand_and_with_curl_alone(folder: Path) -> None:
    port = str(free_port())
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "GRADMARKET_PORT": port}
    environment["GRADMARKET_AUDITOR"] = "cpu"

    def run(script: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script.replace("8700", port)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    @contextmanager
    def running(line: str) -> Iterator[subprocess.Popen[bytes]]:
        with (folder / "log").open("ab") as log:
            words = line.replace("8700", port).split()
            process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)

    try:
        with running(SERVE.strip()):
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/v1/health"))
            first, second, third = WORKERS.strip().split("\n")
            with running(first), running(second), running(third):
                assert '"accuracy"' in run(JOB + "\ngradmarket job show $(cat job.txt) --data data --json")
                assert (folder / "digits.safetensors").stat().st_size > 1000
                for block in BOOKS:
                    assert run(block)
                assert (folder / "ledger.csv").read_text().count("deposit") == 1
                told = run(CURL)
                assert "event: finished" in told
                assert '"payable"' in told
                script = HIRED.replace("rounds=20", "rounds=2")
                (folder / "hired.py").write_text(script)
                assert 0 < float(run("python hired.py").splitlines()[-1]) < 3
    finally:
        chain = LocalChain.find_running_chain(folder / "data" / "chain")
        if chain is not None:
            chain.stop()
        shutil.rmtree(folder / "data", ignore_errors=True)
