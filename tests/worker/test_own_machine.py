"""What a worker takes of its machine by itself: its cores, within its control group's quota, and a card."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.compute import own_machine
from gradmarket.compute.own_machine import AUTO, MOST_THREADS, count_cores, open_runner_on_device, threads_for
from gradmarket.market.errors import Refused
from gradmarket.runner import RunnerSettings

SMALL = RunnerSettings(memory_bytes=2**30)
ALL = float(len(os.sched_getaffinity(0)))


@given(st.floats(0.01, 1e4))
def test_threads_are_a_power_of_two_within_the_cores(there: float) -> None:
    threads = threads_for(there)
    assert 1 <= threads <= MOST_THREADS
    assert threads & (threads - 1) == 0
    assert threads <= max(1.0, there)
    assert 2 * threads > min(there, MOST_THREADS)


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


OWN = {"proc/self/cgroup": "0::/a/b\n"}
OLD = {"proc/self/cgroup": "4:cpu,cpuacct:/a\n1:name=systemd:/x\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ALL),
        (OWN | {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, ALL),
        (OWN | {"sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}, 0.5),
        (OWN | {"sys/fs/cgroup/a/cpu.max": "75000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 0.75),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "20000 100000\n"}, 0.2),
        (OWN | {"sys/fs/cgroup/a/b/cpu.max": "a lot\n"}, ALL),
        (OWN | {"sys/fs/cgroup/a/b/cpu.max": "1 0\n"}, ALL),
        (OLD | {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000"}, ALL),
        (OLD | {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "4000", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "10000"}, 0.4),
        (OLD | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "30", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100"}, 0.3),
        ({"proc/self/cgroup": "nonsense\n"}, ALL),
    ],
)
def test_a_quota_bounds_the_cores(files: dict[str, str], expected: float, tmp_path: Path) -> None:
    assert count_cores(written(tmp_path, files)) == expected


def test_a_card_is_known_by_its_driver(tmp_path: Path) -> None:
    assert not own_machine.has_card(tmp_path)
    assert own_machine.has_card(written(tmp_path, {"dev/nvidiactl": ""}))


def test_what_is_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "has_card", lambda: True)
    monkeypatch.setattr(own_machine, "count_cores", lambda: 8.0)
    with open_runner_on_device(SMALL, "cpu", 3) as mine:
        assert (mine.device, mine.threads) == ("cpu", 3)
        assert mine.runner.determinism_class().endswith("threads-3")


def test_without_a_card_the_cores_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "has_card", lambda: False)
    monkeypatch.setattr(own_machine, "count_cores", lambda: 2.5)
    monkeypatch.delenv("OMP_NUM_THREADS")
    with open_runner_on_device(SMALL, AUTO, None) as mine:
        assert mine.text == "Computes on cpu with 2 threads, of 2.5 cores that it may use."
        assert mine.runner.determinism_class().endswith("threads-2")


def test_a_system_s_own_limit_on_threads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "count_cores", lambda: 64.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    with open_runner_on_device(SMALL, "cpu", None) as mine:
        assert mine.threads == 6


def test_a_card_that_torch_does_not_find_is_left_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's file is there, torch is not built for it: as on a machine with a card and torch for the CPU."""
    monkeypatch.setattr(own_machine, "has_card", lambda: True)
    monkeypatch.setattr(own_machine, "CUDA", "cuda:99")
    with open_runner_on_device(SMALL, AUTO, 1) as mine:
        assert mine.device == "cpu"
        assert "Its card is not used: cuda:99" in mine.text
        assert mine.runner.determinism_class().startswith("cpu/")


def test_a_card_that_is_named_and_not_there_is_refused() -> None:
    with pytest.raises(Refused, match="torch finds no CUDA device"), open_runner_on_device(SMALL, "cuda:99", None):
        raise AssertionError("there is no such card")
