"""A child for each job, few of them at once; in one child nothing of an earlier document stays."""

import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest

from graphdoc.errors import RunnerCrashed
from graphdoc.runner import DocumentRunner, RunnerSettings, children
from tests.handmade import encoded, linear, tensor
from tests.lanes import FULL

SEED = bytes(32)
WIDTH, ROWS, JOBS = 100_000, 40, 50
ALLOWED_GROWTH = 32 * 2**20


def document(number: int) -> bytes:
    """Another job's: 16 MB of rows a step."""
    raw = linear() | {"metrics": {f"m{number}": 4}}
    data = [one for one in raw["inputs"] if one["name"] == "y"]
    inputs = [tensor("param", "w", [1, WIDTH], grad=True), tensor("data", "x", ["rows", WIDTH]), *data]
    return encoded(raw | {"inputs": inputs})


def left_behind(runner: DocumentRunner) -> set[str]:
    """By this child: torch's files have the number of their process, but for the folders of its memory's manager."""
    folders = (Path(tempfile.gettempdir()), Path("/dev/shm"))
    patterns = (f"torch*{runner.pid}*", "torch-shm-dir*")
    return {entry.name for folder in folders for pattern in patterns for entry in folder.glob(pattern)}


@FULL
def test_fifty_documents_take_no_more_memory_than_ten(runner: DocumentRunner) -> None:
    runner.start()
    before = left_behind(runner)
    state = {"w": np.ones((1, WIDTH), np.float32)}
    batch = {"x": np.ones((ROWS, WIDTH), np.float32), "y": np.zeros((ROWS, 1), np.float32)}
    taken = []
    for number in range(JOBS):
        runner.load(document(number))
        assert runner.run(state, batch, SEED, 16)["loss"] > 0
        taken.append(psutil.Process(runner.pid).memory_info().rss)
    assert taken[-1] - taken[9] < ALLOWED_GROWTH, [size // 2**20 for size in taken]
    assert left_behind(runner) <= before


def pid_of(runner: DocumentRunner, job: str, data: bytes) -> int:
    runner.turn(job)
    runner.load(data)
    batch = {"x": np.ones((2, 3), np.float32), "y": np.zeros((2, 1), np.float32)}
    runner.run({"w": np.ones((1, 3), np.float32)}, batch, SEED)
    assert runner.pid is not None
    return runner.pid


def test_the_number_of_kept_children_follows_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(linear())
    with DocumentRunner(RunnerSettings(memory_bytes=2**32)) as runner:
        started = [pid_of(runner, f"job {number}", data) for number in range(4)]
        assert [pid_of(runner, f"job {number}", data) for number in range(4)] == started
        monkeypatch.setattr(children, "MOST_KEPT", 3)
        assert pid_of(runner, "another", data) not in started
        assert [psutil.pid_exists(pid) for pid in started] == [False, False, True, True]


def test_no_child_sees_two_jobs_and_two_are_kept_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same document in another job, too: its digest is no secret. One that ends takes only its own job with it."""
    monkeypatch.setattr(children, "SHARE_KEPT", 0)
    data = encoded(linear())
    with DocumentRunner() as runner:
        first, second = pid_of(runner, "first", data), pid_of(runner, "second", data)
        assert first != second
        assert pid_of(runner, "first", data) == first
        assert pid_of(runner, "second", data) == second
        psutil.Process(second).kill()
        with pytest.raises(RunnerCrashed):
            pid_of(runner, "second", data)
        assert pid_of(runner, "first", data) == first
        third, again = pid_of(runner, "third", data), pid_of(runner, "second", data)
        assert len({first, second, third, again}) == 4
        assert not psutil.pid_exists(first)
        assert pid_of(runner, "third", data) == third
    assert not psutil.pid_exists(third)
    assert not psutil.pid_exists(again)
