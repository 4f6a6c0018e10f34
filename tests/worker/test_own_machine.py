"""The default share of a machine that a worker takes: its cores, within its control group's quota, and a card."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.compute import card_choice, own_machine
from gradmarket.compute.card_choice import take_card
from gradmarket.compute.own_machine import (
    AUTO,
    MOST_THREADS,
    list_device_names,
    open_runner_on_device,
    open_runners,
    share_of_card,
    threads_for,
)
from gradmarket.market.errors import Refused
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.machine_limits import choose_memory, count_cores
from graphdoc.runner.driver import Card, Cards
from tests.lanes import FULL, leave_to_full

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


MACHINE = {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree:  1 kB\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (MACHINE, 8 * 2**30),
        (MACHINE | OWN | {"sys/fs/cgroup/a/b/memory.max": "max\n"}, 8 * 2**30),
        (MACHINE | OWN | {"sys/fs/cgroup/a/memory.max": f"{2**31}\n"}, 2**30),
        (MACHINE | {"proc/self/cgroup": "7:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8"}, 2**28),
        ({}, 2**28),
    ],
)
def test_half_of_the_present_memory_is_taken(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert choose_memory(written(tmp_path, files)) == expected


def test_without_a_limit_the_machine_s_own_is_taken() -> None:
    with open_runner_on_device(SMALL, "cpu", 1, None) as mine:
        assert mine.memory == choose_memory()
    with open_runner_on_device(SMALL, "cpu", 1, 2**29) as mine:
        assert mine.memory == 2**29


def test_a_card_is_known_by_its_driver_unless_its_owner_hides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert not own_machine.has_card(tmp_path)
    assert own_machine.has_card(written(tmp_path, {"dev/nvidiactl": ""}))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not own_machine.has_card(tmp_path)


@FULL
def test_set_device_and_threads_win_over_the_found_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "has_card", lambda: True)
    monkeypatch.setattr(own_machine, "count_cores", lambda: 8.0)
    with open_runner_on_device(SMALL, "cpu", 3, 2**30) as mine:
        assert (mine.device, mine.threads) == ("cpu", 3)
        assert mine.runner.determinism_class().endswith("threads-3")


@FULL
def test_without_a_card_the_cores_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "has_card", lambda: False)
    monkeypatch.setattr(own_machine, "count_cores", lambda: 2.5)
    monkeypatch.delenv("OMP_NUM_THREADS")
    with open_runner_on_device(SMALL, AUTO, None, 2**30) as mine:
        assert mine.text == "Computes on cpu with 2 threads, of 2.5 cores that it may use."
        assert mine.runner.determinism_class().endswith("threads-2")


def test_a_system_s_own_limit_on_threads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "count_cores", lambda: 64.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    with open_runner_on_device(SMALL, "cpu", None, 2**30) as mine:
        assert mine.threads == 6


def no_driver() -> Cards:
    return Cards(fault="no driver: libcuda.so.1", remedy="install it")


def two_cards() -> Cards:
    """Cards that the driver lists and the child cannot use: its card is of a number that no machine has."""
    return Cards("580", tuple(Card(number, "H100", f"GPU-{number}", "sm_90", 2**36, 2**35) for number in (998, 999)))


@pytest.mark.parametrize(("found", "word"), leave_to_full([(no_driver, "no driver"), (two_cards, "CUDA|driver|card")]))
def test_an_unusable_card_is_a_loud_warning_or_an_error(
    found: Callable[[], Cards], word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(own_machine, "has_card", lambda: True)
    monkeypatch.setattr(own_machine, "list_cards", found)
    monkeypatch.setattr(card_choice, "LOCKS", tmp_path)
    with open_runner_on_device(SMALL, AUTO, 1) as mine:
        assert mine.device == "cpu"
        assert mine.warning.startswith("WARNING: this machine has a card, and it is NOT used: ")
        assert re.search(word, mine.why)
        assert mine.runner.determinism_class().startswith("cpu/")
    with pytest.raises(Refused, match=word) as error, open_runner_on_device(SMALL, "cuda", None):
        raise AssertionError("it computes nothing")
    assert error.value.remedy


def test_without_a_card_nothing_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "has_card", lambda: False)
    with open_runner_on_device(SMALL, AUTO, 1) as mine:
        assert mine.warning == ""


def card(number: int, free: int | None = None) -> Card:
    return Card(number, f"card {number}", f"GPU-{number}", "sm_90", 2**36, free)


def test_a_step_may_take_what_is_free_on_the_card_or_could_be() -> None:
    assert share_of_card(card(0, 2**35)) == int(0.9 * 2**35)
    assert share_of_card(card(0)) == int(0.9 * 2**36), "where the driver tells no free memory"
    assert share_of_card(card(0, 3)) == 2**28


def test_workers_of_one_machine_take_different_cards(tmp_path: Path) -> None:
    found = Cards("580", (card(0, 7), card(1, 9), card(2, None)))
    with ExitStack() as stack:
        taken = [stack.enter_context(take_card(found, "cuda", tmp_path)).number for _ in range(3)]
        assert taken == [0, 1, 2]
        assert stack.enter_context(take_card(found, "cuda", tmp_path)).number == 1  # all have one: the most free
        assert stack.enter_context(take_card(found, "cuda:2", tmp_path)).number == 2
    with take_card(found, "cuda:1", tmp_path), take_card(found, "cuda", tmp_path) as first:
        assert first.number == 0
        with take_card(found, "cuda", tmp_path) as second:
            assert second.number == 2


def test_a_card_is_free_again_when_its_worker_was_killed(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from typing import ClassVar, Self
from gradmarket.compute.card_choice import take_card
from graphdoc.runner.driver import Card, Cards
with take_card(Cards("", (Card(0, "c", "GPU-0", "sm_90", 1),)), "cuda", Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found = Cards("", (card(0), card(1)))
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with take_card(found, "cuda", tmp_path) as mine:
            assert mine.number == 1
        other.kill()
    with take_card(found, "cuda", tmp_path) as mine:
        assert mine.number == 0


@pytest.mark.parametrize("device", ["cuda:2", "cuda:99"])
def test_an_absent_card_s_number_is_refused_with_the_present_cards(device: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as error, take_card(Cards("580", (card(0), card(1))), device, tmp_path):
        raise AssertionError("there is no such card")
    assert error.value.detail == f"{device}: this machine has 2 cards: cuda:0 (card 0), cuda:1 (card 1)"


def test_a_worker_s_line_names_its_own_card(tmp_path: Path) -> None:
    with Runner(SMALL) as runner:
        mine = own_machine.Computing(runner, 4.0, card(1))
        assert mine.text == "Computes on cpu (card 1, 64 GiB) with 1 thread, of 4 cores that it may use."


@pytest.mark.parametrize("text", ["all", "cuda:0,cuda:1", "cuda:3", "cuda", "auto", "cpu"])
def test_a_worker_takes_one_device_or_several_cards(text: str) -> None:
    assert list_device_names(text) == text


@pytest.mark.parametrize("text", ["cuda:0,cpu", "cuda:0,cuda:0", "cuda,cuda:1", "cuda:0,", "cuda:0 cuda:1", "both", ""])
def test_a_malformed_list_of_cards_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a device|each once"):
        list_device_names(text)


class Twin:
    """Stands in for a runner on a card: it has a class, and computes nothing."""

    started: ClassVar[list[str]] = []

    def __init__(self, settings: RunnerSettings) -> None:
        self.settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.started.remove(self.settings.device)

    def determinism_class(self) -> str:
        self.started.append(self.settings.device)
        return "cuda/sm_80" if self.settings.device == "cuda:2" else "cuda/sm_90"


@pytest.fixture
def twins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cards = Cards("580", tuple(card(number, 2**35 + number) for number in range(3)))
    monkeypatch.setattr(own_machine, "list_cards", lambda: cards)
    monkeypatch.setattr(own_machine, "Runner", Twin)
    monkeypatch.setattr(card_choice, "LOCKS", tmp_path)


@pytest.mark.usefixtures("twins")
def test_several_cards_have_a_child_each_and_each_is_held() -> None:
    with open_runners(SMALL, "cuda:0,cuda:1", None) as mine:
        assert [one.device for one in mine] == ["cuda:0", "cuda:1"] == sorted(Twin.started)
        assert [one.memory for one in mine] == [share_of_card(card(number, 2**35 + number)) for number in (0, 1)]
        assert len({one.runner.settings.slots for one in mine}) == 2, "a card's memory is shared with its own workers"
        with take_card(own_machine.list_cards(), "cuda") as other:
            assert other.number == 2
    assert Twin.started == []


@pytest.mark.usefixtures("twins")
def test_cards_of_two_classes_are_no_one_worker() -> None:
    with pytest.raises(Refused) as error, open_runners(SMALL, "all", None):
        raise AssertionError("its votes would be of two classes")
    assert error.value.detail == "cuda:2 is of the class cuda/sm_80, cuda:0 of cuda/sm_90: a worker has one class"
    assert error.value.remedy == "start a worker of its own for cuda:2, with its own --data"
    assert Twin.started == []


def test_all_of_no_cards_is_refused_as_the_driver_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_machine, "list_cards", no_driver)
    with pytest.raises(Refused, match="all: no driver") as error, open_runners(SMALL, "all", None):
        raise AssertionError("there is none")
    assert error.value.remedy == "install it"
