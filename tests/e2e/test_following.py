"""A job watched while its service goes away and comes back, and by a watcher that leaves."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from gradmarket.client import RequesterClient
from gradmarket.demo import service
from gradmarket.demo.children import DemoProcess, DemoProcesses
from gradmarket.endpoint import find_endpoint
from gradmarket.market.terms import JobState
from tests.e2e.test_commands import JOB
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.processes import free_port


class Restarted:
    """A service at one port, which is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._port = str(free_port())
        self.data, self._children = folder / "data", DemoProcesses(folder / "logs")
        self._starts = 0
        self.start()

    def start(self) -> None:
        self._starts += 1
        arguments = ["-m", "gradmarket", "serve", "--data", str(self.data), "--port", self._port]
        self._child: DemoProcess = self._children.start(f"serve-{self._starts}", arguments)
        wait_until(self._ready)

    def kill(self) -> None:
        self._child.process.kill()
        self._child.process.wait()

    def end(self) -> None:
        self._children.end()
        service.stop_chain(self.data)

    def market(self) -> RequesterClient:
        return find_endpoint(data=self.data).market()

    def _ready(self) -> bool:
        return (self.data / "url").is_file() and service.is_service_ready(self.market())


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    made = Restarted(tmp_path_factory.mktemp("restarted"))
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def job(restarted: Restarted) -> str:
    with restarted.market() as market:
        return market.submit(JOB).id


Watch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def watched(restarted: Restarted, job: str, tmp_path: Path) -> Iterator[Watch]:
    """Starts `gradmarket job watch` as a process; its output is in `said` of the test's folder."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gradmarket", "job", "watch", job, "--data", str(restarted.data), *options]
        with (tmp_path / "said").open("w") as out, (tmp_path / "faults").open("w") as err:
            # whoever runs the tests in the background has them ignore interrupts, and so what they start
            heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
            started.append(subprocess.Popen(command, stdout=out, stderr=err, text=True, preexec_fn=heeds))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@FULL
def test_watching_outlives_the_service(restarted: Restarted, job: str, watched: Watch, tmp_path: Path) -> None:
    process = watched("--json")
    wait_until(lambda: (tmp_path / "said").read_text() != "")
    restarted.kill()
    faults = tmp_path / "faults"
    wait_until(lambda: "trying again" in faults.read_text())
    restarted.start()
    with restarted.market() as market:
        market.steer(job, "cancel")
    assert process.wait(PATIENCE_S) == 1
    assert faults.read_text().count("\n") == 1, "an outage is told once"
    states = [json.loads(line)["state"] for line in (tmp_path / "said").read_text().splitlines()]
    assert states[-1] == JobState.CANCELLED


@FULL
def test_an_interrupted_watch_prints_that_the_job_goes_on(
    restarted: Restarted, job: str, watched: Watch, tmp_path: Path
) -> None:
    process = watched()
    wait_until(lambda: (tmp_path / "said").read_text() != "")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert (tmp_path / "faults").read_text() == (
        f"The job goes on without you: `gradmarket job watch {job}` shows it again.\n"
    )
    with restarted.market() as market:
        assert market.job(job).state != JobState.CANCELLED


def completed(words: str, **environment: str) -> list[str]:
    """Returns a shell's completions at the end of the words."""
    given = {"_GRADMARKET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [str(Path(sys.executable).parent / "gradmarket")]
    done = subprocess.run(command, env={**os.environ, **given, **environment}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@FULL
def test_a_shell_completes_commands_and_job_ids(restarted: Restarted, job: str, tmp_path: Path) -> None:
    assert completed("gradmarket job do") == ["download"]
    assert job in completed("gradmarket job show ", GRADMARKET_DATA=str(restarted.data))
    assert completed(f"gradmarket job show {job[:-1]}", GRADMARKET_DATA=str(restarted.data)) == [job]
    assert completed("gradmarket job show ", GRADMARKET_DATA=str(tmp_path)) == [], "without a service there are none"


def test_the_command_prints_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "gradmarket", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"gradmarket {version('gradmarket')}\n"
