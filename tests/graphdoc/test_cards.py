"""The driver's list of its cards, and the confinement's refusals. A compiled stand-in is the driver."""

import os
import platform
import re
from pathlib import Path

import pytest

from graphdoc.runner import cards
from graphdoc.runner.admitted import CALLS, READ, list_allowed_paths
from graphdoc.runner.confine import forbid_driver_calls
from graphdoc.runner.driver import Card, CardLoad, Management
from graphdoc.runner.settings import RunnerSettings, build_child_environment, choose_visible
from graphdoc.runner.watched_start import is_admitted
from tests.kit.stand_in_card import NAMES, UUIDS, install_driver, make_nodes
from tests.lanes import FULL, leave_to_full

SECRET = "/etc/shadow"
NOTHING_REFUSED = cards.Refusals()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make_nodes(tmp_path / "root")


def install(root: Path, monkeypatch: pytest.MonkeyPatch, *defined: str) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", install_driver(root / "usr/lib", root, *defined))


@FULL
def test_each_card_has_its_own_name_and_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(root, monkeypatch)
    found = cards.list_cards()
    assert (found.driver, found.fault) == ("580.159.04", "")
    assert found.cards == (
        Card(0, NAMES[0], UUIDS[0], "sm_90", 80 << 30, 70 << 30),
        Card(1, NAMES[1], UUIDS[1], "sm_90", 141 << 30, 5 << 30),
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [card.name for card in cards.list_cards().cards] == [NAMES[1]]


def test_the_driver_starts_in_the_confinement(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(root, monkeypatch)
    found, refused = cards.start_confined(root)
    assert (len(found.cards), found.fault, refused) == (2, "", NOTHING_REFUSED)


@pytest.mark.parametrize(
    ("more", "word"),
    leave_to_full([(f'MORE_PATH="{SECRET}"', f"the path {SECRET}"), ("MORE_SOCKET", "the call socket(0x2, 0x1, 0x0)")]),
)
def test_the_driver_s_refused_call_or_path_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, more: str, word: str
) -> None:
    """A driver that needs more than was measured: cuInit's own error, and the call or path."""
    install(root, monkeypatch, more)
    assert cards.list_cards().fault == ""
    found, refused = cards.start_confined(root)
    assert found.fault.startswith("cuInit says CUDA_ERROR_OPERATING_SYSTEM (304): OS call failed")
    assert "gradmarket doctor" in found.remedy
    assert str(refused) == word


@FULL
def test_a_missing_driver_and_a_missing_card_have_their_own_faults(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(root))
    (root / "libcuda.so.1").write_text("no library")
    assert cards.list_cards().fault.startswith("no driver: ")
    install(root, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = cards.list_cards()
    assert found.fault == "cuInit says CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"
    assert "CUDA_VISIBLE_DEVICES" in found.remedy


def test_a_driver_that_ends_its_process_is_a_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(root, monkeypatch, "cuInit=none", "cuGetErrorName=none2")
    assert "the driver's start ended the process: AttributeError" in cards.list_cards().fault


@pytest.mark.parametrize(
    ("device", "listed", "seen"),
    [
        ("cuda", None, "0"),
        ("cuda:3", None, "3"),
        ("cuda", "2,5", "2"),
        ("cuda:1", "2, GPU-5f", "GPU-5f"),
        ("cuda:2", "2,5", ""),
        ("cuda", "", ""),
        ("cuda:1", "MIG-a,MIG-b", "MIG-b"),
    ],
)
def test_a_child_sees_its_card_alone(
    device: str, listed: str | None, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_visible(device, listed) == seen
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    given = build_child_environment(RunnerSettings(device=device))
    assert (given["CUDA_VISIBLE_DEVICES"], given["CUDA_DEVICE_ORDER"]) == (seen, "PCI_BUS_ID")
    assert "CUDA_DEVICE_ORDER" not in build_child_environment(RunnerSettings())


@pytest.mark.parametrize(
    ("path", "flags", "admitted"),
    [
        ("/proc/self/task/7/comm", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, True),
        ("/proc/self/oom_score_adj", os.O_WRONLY, False),
        ("/proc/self/maps", os.O_RDONLY, True),
        ("/etc/ld.so.cache", os.O_RDONLY, True),
        (SECRET, os.O_RDONLY, False),
        (SECRET, os.O_PATH, True),
        ("/usr/lib", os.O_RDONLY | os.O_DIRECTORY, True),
        ("/usr/lib/new", os.O_WRONLY, False),
        ("/dev", os.O_RDONLY | os.O_DIRECTORY, False),
    ],
)
def test_the_table_decides_on_a_path(path: str, flags: int, admitted: bool) -> None:
    assert is_admitted(path, flags, list(list_allowed_paths("cuda"))) is admitted
    assert is_admitted("/a/b", os.O_RDONLY, [("/a", READ)])


@pytest.mark.parametrize(
    ("machine", "header"), [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")]
)
def test_the_calls_numbers_are_the_kernels(machine: str, header: str) -> None:
    path, calls = Path("/usr/include") / header, CALLS[machine]
    if not path.exists():
        pytest.skip("this machine has no headers of the kernel")
    kernels = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", path.read_text())}
    named = {"clone": calls.clone, "clone3": calls.clone3, "seccomp": calls.seccomp, **calls.opening, **calls.forbidden}
    assert named == {name: kernels[name] for name in named}


def test_forbidding_the_calls_of_an_unknown_processor_returns_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not forbid_driver_calls()


def test_each_card_s_load_is_found_by_its_own_uuid(root: Path) -> None:
    install_driver(root, root)
    library = Management(str(root / "libnvidia-ml.so.1"))
    assert library.read_load(UUIDS[0]) == CardLoad("NVIDIA H100 80GB HBM3", 93, 612.5, 61, 70 << 30)
    assert library.read_load(UUIDS[1]) == CardLoad("NVIDIA H200", 93, None, 61, 5 << 30)
    assert library.read_load("GPU-2") is None
    assert Management(str(root / "no library")).read_load(UUIDS[0]) is None


def test_an_instance_of_a_card_is_found_by_the_uuid_that_the_driver_has(root: Path) -> None:
    install_driver(root, root, "INSTANCES")
    library = Management(str(root / "libnvidia-ml.so.1"))
    assert (library.read_free_bytes(UUIDS[0]), library.read_free_bytes(UUIDS[1])) == (70 << 30, 5 << 30)
