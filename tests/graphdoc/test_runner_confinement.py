"""Forbidden acts of a child, tried from inside a process that is confined as a child is."""

import json
import os
import resource
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from graphdoc.runner import DocumentRunner
from graphdoc.runner.confine import MEASURES
from graphdoc.runner.settings import RunnerSettings, build_child_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the measures are Linux's")

ATTEMPTS = """
    import json, os, resource, signal, socket, subprocess, sys, threading
    from graphdoc.runner.confine import confine_process

    held = confine_process(os.getppid(), False, "cpu", 2**28)

    def outcome(attempt):
        try:
            attempt()
        except (OSError, MemoryError) as error:
            return type(error).__name__
        return "done"

    def thread():
        other = threading.Thread(target=lambda: None)
        other.start()
        other.join()

    def large_file():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        descriptor = os.memfd_create("large")
        os.ftruncate(descriptor, 2**29)

    def attempts_on_files():
        yield "a secret", lambda: open("/etc/passwd").read()
        yield "a neighbour's environment", lambda: open(f"/proc/{os.getppid()}/environ", "rb").read()
        yield "a folder", lambda: os.listdir(os.path.expanduser("~"))
        yield "a new file", lambda: open(sys.argv[1] + "/new", "w")
        yield "an old file", lambda: open(sys.argv[1] + "/old", "a")
        yield "a removal", lambda: os.unlink(sys.argv[1] + "/old")
        yield "another name", lambda: os.rename(sys.argv[1] + "/old", sys.argv[1] + "/other")
        yield "a folder made", lambda: os.mkdir(sys.argv[1] + "/made")
        yield "shared memory", lambda: open("/dev/shm/h", "w")
        yield "a temporary file", lambda: open("/tmp/gradmarket-hostile", "w")

    print(json.dumps({
        "held": held,
        "files": {name: outcome(attempt) for name, attempt in attempts_on_files()},
        "late import": outcome(lambda: __import__("xmlrpc.client")),
        "socket": outcome(lambda: socket.socket()),
        "socket pair": outcome(lambda: socket.socketpair()),
        "fork": outcome(lambda: os.fork()),
        "program": outcome(lambda: subprocess.run(["true"])),
        "replacement": outcome(lambda: os.execv("/bin/true", ["true"])),
        "kill": outcome(lambda: os.kill(os.getppid(), 0)),
        "memory": outcome(lambda: bytearray(2**29)),
        "large file": outcome(large_file),
        "some memory": outcome(lambda: bytearray(2**26)),
        "thread": outcome(thread),
        "own file": outcome(lambda: os.close(os.memfd_create("small"))),
    }))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    code, folder = textwrap.dedent(ATTEMPTS), tmp_path_factory.mktemp("theirs")
    (folder / "old").write_text("theirs")
    command = [sys.executable, "-c", code, str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (folder / "old").read_text() == "theirs"
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def test_network_programs_processes_and_signals_are_gone(outcomes: dict[str, Any]) -> None:
    if "calls" not in outcomes["held"]:
        pytest.skip("this machine does not filter system calls")
    for attempt in ("socket", "socket pair", "fork", "program", "replacement", "kill"):
        assert outcomes[attempt] == "PermissionError", attempt


def test_no_file_is_written_and_none_read_but_code_and_libraries(outcomes: dict[str, Any]) -> None:
    if "files" not in outcomes["held"]:
        pytest.skip("this machine has no Landlock")
    for attempt, outcome in outcomes["files"].items():
        assert outcome in ("PermissionError", "OSError"), attempt
    assert outcomes["late import"] == "done"


def test_a_runner_lists_the_missing_measures(runner: DocumentRunner, outcomes: dict[str, Any]) -> None:
    assert set(runner.missing()) == set(MEASURES) - set(outcomes["held"])


def test_memory_and_files_have_ceilings(outcomes: dict[str, Any]) -> None:
    assert outcomes["memory"] == "MemoryError"
    assert outcomes["large file"] == "OSError"


def test_a_step_s_memory_threads_and_files_are_allowed(outcomes: dict[str, Any]) -> None:
    for attempt in ("some memory", "thread", "own file"):
        assert outcomes[attempt] == "done", attempt


def test_the_child_has_none_of_the_parent_s_environment(
    runner: DocumentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADMARKET_SECRET", "hidden")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    given = build_child_environment(RunnerSettings(threads=3))
    assert "GRADMARKET_SECRET" not in given
    assert given["OMP_NUM_THREADS"] == given["MKL_NUM_THREADS"] == "3"
    runner.start()
    with open(f"/proc/{runner.pid}/environ", "rb") as file:
        names = {entry.split(b"=")[0].decode() for entry in file.read().split(b"\0") if entry}
    assert names == set(build_child_environment(runner.settings))


def test_the_child_has_only_its_own_descriptors(runner: DocumentRunner) -> None:
    secret = os.open(__file__, os.O_RDONLY)
    try:
        os.set_inheritable(secret, True)
        runner.close()
        runner.start()
        open_files = [os.readlink(f"/proc/{runner.pid}/fd/{number}") for number in os.listdir(f"/proc/{runner.pid}/fd")]
    finally:
        os.close(secret)
    assert not any("test_runner" in name or "socket:" in name for name in open_files)
    assert len(open_files) <= 8


def test_the_child_is_limited(runner: DocumentRunner) -> None:
    runner.start()
    assert runner.pid is not None
    soft, hard = resource.prlimit(runner.pid, resource.RLIMIT_CORE)
    assert (soft, hard) == (0, 0)
    ceiling, _ = resource.prlimit(runner.pid, resource.RLIMIT_AS)
    assert 0 < ceiling < 64 * 2**30


def test_the_class_names_what_decides_the_bits(runner: DocumentRunner) -> None:
    parts = runner.determinism_class().split("/")
    assert parts[0] == "cpu"
    assert "threads-1" in parts
    assert any(part.startswith("torch-2.13.0") for part in parts)
