"""A child that fails in any way costs an error, never the parent; nothing is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphdoc.document.graph import answer_of
from graphdoc.errors import GraphdocError, OutOfMemory, Refused, RunnerCrashed, RunnerTimeout
from graphdoc.figures import Published
from graphdoc.runner import DocumentRunner, RunnerSettings, process
from tests.handmade import Raw, encoded, linear, node, tensor, value
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.processes import is_running, processor_ticks

Arrays = dict[str, np.ndarray]
SEED = bytes(32)
AT_WORK = 10
"""Ticks of the kernel's clock: more than a child takes that hears of a task."""
STRANGE = Path(__file__).with_name("strange_child.py")


def child_of(runner: DocumentRunner) -> int:
    assert runner.pid is not None
    return runner.pid


def wait_until_at_work(pid: int) -> None:
    """Waits until it computes: its clock goes on."""
    before = processor_ticks(pid)
    wait_until(lambda: processor_ticks(pid) > before + AT_WORK)


def kill_at_work(pid: int) -> None:
    wait_until_at_work(pid)
    os.kill(pid, signal.SIGKILL)


def endless() -> Raw:
    """Minutes of matrix products over few bytes."""
    width = 2048
    products = [node("mm.default", [value(0), value(number and 1 + number)], 2 + number) for number in range(1000)]
    loss = node("mean.default", [value(1001), None], 1002)
    return {
        **linear(),
        "inputs": [tensor("param", "w", [width, width], grad=True), tensor("data", "x", ["rows", 1])],
        "nodes": [*products, loss],
        "loss": 1002,
    }


def compute_endlessly(runner: DocumentRunner) -> None:
    runner.load(encoded(endless()))
    runner.run(ENDLESS_STATE, ONE_ROW, SEED)


ENDLESS_STATE = {"w": np.zeros((2048, 2048), np.float32)}
ONE_ROW = {"x": np.zeros((1, 1), np.float32)}


@FULL
def test_a_child_that_is_late_or_killed_is_followed_by_another(mlp: Published, digits: Arrays) -> None:
    patient = RunnerSettings(seconds=PATIENCE_S, memory_bytes=2**36)
    with DocumentRunner(replace(patient, seconds=3.0)) as runner:
        runner.start()
        first = child_of(runner)
        with pytest.raises(RunnerTimeout):
            compute_endlessly(runner)
        assert not is_running(first)
        runner.settings = patient
        runner.start()
        second = child_of(runner)
        threading.Thread(target=kill_at_work, args=(second,)).start()
        with pytest.raises(RunnerCrashed, match="SIGKILL"):
            runner.run(ENDLESS_STATE, ONE_ROW, SEED)
        document = runner.load(mlp.document)
        answer = runner.run(mlp.parameters, digits, SEED)
        assert list(answer) == [*answer_of(document)]
        assert len({first, second, child_of(runner)}) == 3


def test_a_child_that_is_killed_while_it_waits(mlp: Published, digits: Arrays) -> None:
    with DocumentRunner() as runner:
        runner.load(mlp.document)
        os.kill(child_of(runner), signal.SIGKILL)
        wait_until(lambda: not is_running(child_of(runner)))
        with pytest.raises(RunnerCrashed):
            runner.run(mlp.parameters, digits, SEED)
        assert runner.pid is None


def test_too_much_memory_is_an_error_of_its_own_and_closing_leaves_nothing(
    runner: DocumentRunner, mlp: Published, digits: Arrays
) -> None:
    runner.start()  # the process that starts children stays
    before = set(os.listdir("/proc/self/fd"))
    with DocumentRunner(RunnerSettings(memory_bytes=2**28)) as runner:
        document = linear()
        document["inputs"][0]["shape"] = [1, 2**24]  # a pass fits; the memory beside it is too much
        document["nodes"] = [
            node("sum.default", [value(0), None], 3),
            node("mse_loss.default", [value(3), value(3), 1], 4),
        ]
        runner.load(encoded(document))
        batch = {"x": np.ones((1, 3), np.float32), "y": np.ones((1, 1), np.float32)}
        with pytest.raises(OutOfMemory):
            runner.run({"w": np.ones((1, 2**24), np.float32)}, batch, SEED)
        runner.load(mlp.document)
        assert runner.run(mlp.parameters, digits, SEED)
        child = child_of(runner)
    runner.close()
    assert not is_running(child)
    assert set(os.listdir("/proc/self/fd")) <= before


CRASHES = [
    *("noise", "a pickle", "a frame of four gigabytes", "half a frame", "not an object", "deep", "a crash"),
    *("an unknown error", "an error that is a list", "neither answer nor error", "an answer of another kind"),
    "a strange greeting",
]


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], DocumentRunner]:
    """A runner whose child behaves so."""

    def strange(behaviour: str) -> DocumentRunner:
        monkeypatch.setattr(process, "COMMAND", (sys.executable, "-I", str(STRANGE), behaviour))
        return DocumentRunner(RunnerSettings(seconds=PATIENCE_S))

    return strange


@pytest.mark.parametrize("behaviour", CRASHES)
def test_a_broken_child_s_answer_is_a_crash(taken_over: Callable[[str], DocumentRunner], behaviour: str) -> None:
    with taken_over(behaviour) as runner, pytest.raises(RunnerCrashed):
        runner.load(encoded(linear()))
    assert runner.pid is None


def test_a_silent_child_times_out(taken_over: Callable[[str], DocumentRunner]) -> None:
    with taken_over("silence") as runner:
        runner.settings = RunnerSettings(seconds=0.5)
        with pytest.raises(RunnerTimeout):
            runner.load(encoded(linear()))


def test_a_child_cannot_shrink_the_memory_that_it_shares(taken_over: Callable[[str], DocumentRunner]) -> None:
    with taken_over("a shrunken arena") as runner, pytest.raises(Refused, match="cannot be shrunk"):
        runner.load(encoded(linear()))


def test_a_child_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-I", "-c", "raise SystemExit('no torch here')"))
    before = set(os.listdir("/proc/self/fd"))
    with DocumentRunner() as runner, pytest.raises(RunnerCrashed, match="exit code 1; no torch here"):
        runner.start()
    assert set(os.listdir("/proc/self/fd")) <= before


PARENT = """
    import threading
    from graphdoc.runner import DocumentRunner, RunnerSettings, warm_start
    from tests.handmade import encoded
    from tests.graphdoc.test_runner_failures import ENDLESS_STATE, ONE_ROW, SEED, endless

    def ask():
        runner = DocumentRunner(RunnerSettings(memory_bytes=2**36, seconds=600.0))
        runner.load(encoded(endless()))
        print(runner.pid, *warm_start.list_warm_processes(), flush=True)
        runner.run(ENDLESS_STATE, ONE_ROW, SEED)

    {call}
"""
CALLS = {"from the main thread": "ask()", "from another thread": "threading.Thread(target=ask).start()"}


@FULL
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_killed_parent_leaves_nothing(call: str) -> None:
    code = textwrap.dedent(PARENT).format(call=call)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, *warm = map(int, parent.stdout.readline().split())
        assert all(map(is_running, (child, *warm)))
        wait_until_at_work(child)
        parent.kill()
    wait_until(lambda: not any(map(is_running, (child, *warm))))


def test_errors_are_of_one_tree() -> None:
    for kind in (RunnerCrashed, RunnerTimeout, OutOfMemory):
        assert issubclass(kind, GraphdocError)
        assert not issubclass(kind, Refused)
