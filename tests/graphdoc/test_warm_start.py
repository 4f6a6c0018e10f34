"""Children forked from a warm process: confined, reported and ended as those that are started by themselves."""

import os
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from graphdoc.errors import RunnerCrashed, RunnerTimeout
from graphdoc.figures import Published
from graphdoc.runner import DocumentRunner, RunnerSettings, warm_start
from graphdoc.runner.arena import Arena
from graphdoc.runner.process import RUN_MODULE, ChildProcess
from graphdoc.runner.settings import build_child_environment
from tests.lanes import FULL
from tests.patience import wait_until
from tests.processes import is_running

pytestmark = pytest.mark.skipif(not warm_start.AVAILABLE, reason="only Linux has warm processes")

SETTINGS = RunnerSettings(memory_bytes=2**28, seconds=60.0, start_seconds=60.0)
HOSTILE, BUSY = ((*RUN_MODULE, f"tests.graphdoc.{name}") for name in ("hostile_child", "busy_module"))
COMMAND, RUNNING = warm_start.COMMAND, warm_start._running
LIGHT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from graphdoc.runner.forking import main
main()
"""
"""A warm process that finds the tests' modules; it has no torch."""
Start = Callable[..., ChildProcess]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts hostile children, from a warm process of this test's own."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setattr(warm_start, "COMMAND", (sys.executable, "-c", LIGHT, root))
    own: list[warm_start.WarmProcess] = []
    monkeypatch.setattr(warm_start, "_running", own)
    with ExitStack() as started:

        def start(settings: RunnerSettings = SETTINGS, command: tuple[str, ...] = HOSTILE) -> ChildProcess:
            arena = Arena.create()
            started.callback(arena.close)
            child = ChildProcess(settings, arena, command)
            started.callback(child.end)
            return child

        yield start
        monkeypatch.setattr(warm_start, "_running", own)  # a test may use the one of all others, and leaves it running
        warm_start.end_warm_processes()


def describe(child: ChildProcess) -> dict[str, Any]:
    """Returns the kernel's facts of a child, without addresses and numbers of its own."""
    folder = Path(f"/proc/{child.pid}")
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
    limits = [resource.prlimit(child.pid, one) for one in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]
    mapped = int((folder / "statm").read_text().split()[0]) * resource.getpagesize()
    opened = [os.readlink(folder / "fd" / number) for number in os.listdir(folder / "fd")]
    return {
        "confined": child.greeting.confined,
        **{name: status[name] for name in ("Uid", "Seccomp", "NoNewPrivs", "Threads", "Umask", "SigIgn", "SigBlk")},
        "limits": [*limits, resource.prlimit(child.pid, resource.RLIMIT_NOFILE)],
        "memory": 0 <= resource.prlimit(child.pid, resource.RLIMIT_AS)[0] - mapped <= SETTINGS.memory_bytes,
        "network apart": os.readlink(folder / "ns/net") != os.readlink("/proc/self/ns/net"),
        "leads a session": os.getsid(child.pid) == child.pid,
        "folder": os.readlink(folder / "cwd"),
        "environment": sorted((folder / "environ").read_bytes().split(b"\0")),
        "open": sorted(re.split("[:#]", name)[0] for name in opened),
    }


def test_a_forked_child_is_confined_as_one_that_is_started(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_SECRET", "hidden")
    monkeypatch.setattr(warm_start, "COMMAND", COMMAND)
    monkeypatch.setattr(warm_start, "_running", RUNNING)
    documents = (*RUN_MODULE, "graphdoc.runner.child")
    secret = os.open(__file__, os.O_RDONLY)
    os.set_inheritable(secret, True)
    first, second = start(command=documents), start(command=documents)
    mask = os.umask(0o027)  # set since the warm process began, as the signal is ignored since
    handled = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr(warm_start, "AVAILABLE", False)
        alone = start(command=documents)
    finally:
        signal.signal(signal.SIGINT, handled)
        os.umask(mask)
        os.close(secret)
    assert psutil.Process(alone.pid).ppid() == os.getpid()
    assert psutil.Process(first.pid).ppid() == psutil.Process(second.pid).ppid() != os.getpid()
    assert describe(first) == describe(second) == describe(alone)
    assert first.greeting == alone.greeting


def test_the_warm_process_knows_nothing_and_does_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_SECRET", "hidden")
    secret = os.open(__file__, os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        warm = psutil.Process(psutil.Process(start().pid).ppid())
    finally:
        os.close(secret)
    assert warm.ppid() == os.getpid()
    assert warm.environ() == build_child_environment(SETTINGS)
    assert warm.num_threads() == 1
    opened = [os.readlink(f"/proc/{warm.pid}/fd/{number}") for number in os.listdir(f"/proc/{warm.pid}/fd")]
    held = sorted(name.partition(":")[0] for name in opened)
    assert held == ["/dev/null"] * 3 + ["anon_inode"] * 2 + ["pipe", "socket"], "its parent, a child and its status"


def test_a_child_reaches_neither_the_warm_process_nor_its_sisters(start: Start) -> None:
    sister, child = start(), start()
    if len(child.greeting.confined) < 3:
        pytest.skip("this machine does not offer all measures")
    outcomes = child.ask({"do": "try", "sister": sister.pid})
    assert set(outcomes.values()) == {"PermissionError"}, outcomes
    assert sister.ask({"do": "try", "sister": child.pid})


@FULL
def test_each_child_has_its_own_limits_and_threads(start: Start) -> None:
    less, more = start(), start(replace(SETTINGS, memory_bytes=2**30))
    parallel = start(replace(SETTINGS, threads=2))
    ceilings = [resource.prlimit(child.pid, resource.RLIMIT_FSIZE)[0] for child in (less, more)]
    assert ceilings == [2**28, 2**30]
    assert psutil.Process(less.pid).ppid() == psutil.Process(more.pid).ppid() != psutil.Process(parallel.pid).ppid()
    environment = psutil.Process(parallel.pid).environ()
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "2"


def test_ends_are_reported(start: Start) -> None:
    killed, stopped = start(), start()
    os.kill(killed.pid, signal.SIGSEGV)
    with pytest.raises(RunnerCrashed, match="SIGSEGV"):
        killed.ask({"do": "try", "sister": stopped.pid})
    os.kill(stopped.pid, signal.SIGXCPU)
    with pytest.raises(RunnerTimeout, match="processor time"):
        stopped.ask({"do": "try", "sister": killed.pid})
    with pytest.raises(RunnerCrashed, match=r"exit code 1; KeyError: 'nothing'"):
        start().ask({"do": "nothing"})
    with pytest.raises(RunnerCrashed, match=r"exit code 1; ModuleNotFoundError: No module named 'tests.nowhere'"):
        start(command=(*RUN_MODULE, "tests.nowhere"))


def count_descriptors() -> Counter[str]:
    """Returns how many descriptors of this process are open of each file: what others close hides no new one."""
    opened: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            opened[os.readlink(f"/proc/self/fd/{number}")] += 1
    return opened


def test_ended_children_leave_nothing(start: Start) -> None:
    start().end()
    before = count_descriptors()
    children = [start() for _ in range(3)]
    for child in children:
        child.end()
        child.kill()
        child.arena.close()
        child.arena.descriptor = os.open(os.devnull, os.O_RDONLY)
    (warm,) = warm_start.list_warm_processes()
    assert count_descriptors() - before == {os.devnull: len(children)}
    wait_until(lambda: not psutil.Process(warm).children())


@FULL
def test_a_warm_process_that_ends_takes_its_children_and_is_followed_by_another(start: Start) -> None:
    child = start()
    (first,) = warm_start.list_warm_processes()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_running(child.pid))
    with pytest.raises(RunnerCrashed, match="SIGKILL"):
        child.ask({"do": "try", "sister": 1})
    assert start().pid
    (second,) = warm_start.list_warm_processes()
    assert first != second
    assert not is_running(first)


def test_one_that_does_not_answer_is_late_and_ends_with_its_last_child(start: Start) -> None:
    child = start()
    (late,) = warm_start.list_warm_processes()
    os.kill(late, signal.SIGSTOP)
    with pytest.raises(RunnerTimeout):
        start(replace(SETTINGS, start_seconds=0.05))
    assert child.ask({"do": "try", "sister": os.getpid()}), "others' children work on"
    sister = start()
    _, other = warm_start.list_warm_processes()
    assert [psutil.Process(one.pid).ppid() for one in (child, sister)] == [late, other]
    os.kill(late, signal.SIGCONT)  # it meets the request that nobody waits for any more
    assert child.ask({"do": "try", "sister": os.getpid()})
    child.end()
    wait_until(lambda: not is_running(late))
    assert sister.ask({"do": "try", "sister": os.getpid()})
    start()
    assert warm_start.list_warm_processes() == [other]


def test_a_child_ends_whose_warm_process_does_not_report(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "REPORT_SECONDS", 0)
    child = start()
    (warm,) = warm_start.list_warm_processes()
    os.kill(warm, signal.SIGSTOP)
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(RunnerCrashed, match="SIGKILL"):
        child.ask({"do": "try", "sister": warm})
    os.kill(warm, signal.SIGCONT)
    assert psutil.Process(start().pid).ppid() == warm


@pytest.mark.parametrize("command", [("/bin/false",), (os.devnull,)])
def test_where_none_starts_an_interpreter_does(
    start: Start, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(warm_start, "COMMAND", command)
    child = start(command=(*RUN_MODULE, "graphdoc.runner.reading"))
    assert psutil.Process(child.pid).ppid() == os.getpid()


def test_one_with_threads_does_not_fork(start: Start) -> None:
    with pytest.raises(RunnerCrashed, match="ModuleNotFoundError"):
        start(command=BUSY)  # an interpreter is started, which does not find the tests


@FULL
@pytest.mark.parametrize("threads", [1, 2])
def test_bits_are_those_of_a_child_that_is_started(
    cnn: Published, images: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    answers = []
    for available in (True, False):
        monkeypatch.setattr(warm_start, "AVAILABLE", available)
        with DocumentRunner(RunnerSettings(threads=threads)) as runner:
            runner.load(cnn.document)
            answers.append(runner.run(cnn.parameters, images, bytes(32)))
            answers.append(runner.run(cnn.parameters, images, bytes(32), 24))
            assert (psutil.Process(runner.pid).ppid() == os.getpid()) is not available
    for forked, started in (answers[::2], answers[1::2]):
        assert {name: array.tobytes() for name, array in forked.items()} == {
            name: array.tobytes() for name, array in started.items()
        }
