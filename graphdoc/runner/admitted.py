"""The one table of the system calls and paths that a confined child may use, by its device, with rights.

A card's part was measured on an H100 and an H200 (driver 580, CUDA 13, torch 2.11), each entry needed alone. The driver
opens an abstract socket of one kind when it starts, names its threads through /proc/self/task/N/comm, and computes by
three device nodes. It takes neither /etc, /sys nor /dev as a whole. Instances of a card (MIG) take what NVIDIA's MIG
user guide names, WSL its one node; neither was tried.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WRITE_FILE, READ_FILE, READ_DIRECTORY, TRUNCATE, IOCTL = 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
"""Landlock's rights: https://docs.kernel.org/userspace-api/landlock.html"""
READ: Final = READ_FILE | READ_DIRECTORY
COMPUTE: Final = READ_FILE | WRITE_FILE | IOCTL
NAME_THREADS: Final = READ | WRITE_FILE | TRUNCATE

SYSTEM: Final = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/sys/devices", "/dev/null", "/dev/urandom")
OWN: Final = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo")
"""Never /proc itself: it shows the environments of other processes."""
NODES: Final = ("dev/nvidiactl", "dev/nvidia-uvm", "dev/dxg")
"""Nodes of every card; each has /dev/nvidiaN too. Profilers alone take /dev/nvidia-uvm-tools."""
SEVERAL: Final = ("proc/driver/nvidia", "proc/devices")
"""Files that name cards and their instances where the machine has several."""
_NODE: Final = re.compile(r"nvidia(\d+)")

DRIVER_SOCKET: Final = (1, 0x80005)
"""AF_UNIX, and exactly SOCK_SEQPACKET | SOCK_CLOEXEC: it reaches nobody without `connect`, which is forbidden."""
DRIVER_CALLS: Final = ("socket", "bind", "listen")
"""The driver's calls at its start, `socket` with DRIVER_SOCKET alone; forbidden before the first request."""


@dataclass(frozen=True)
class Calls:
    """The system call numbers of one processor architecture."""

    architecture: int
    clone: int
    clone3: int
    seccomp: int
    opening: Mapping[str, int]
    forbidden: Mapping[str, int]


# fmt: off
_EVERYWHERE: Final = {"pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
CALLS: Final = {
    "x86_64": Calls(
        0xC000003E,
        56,
        435,
        317,
        {"open": 2, "openat": 257, "openat2": 437},
        {
            **_EVERYWHERE,
            "socket": 41, "connect": 42, "bind": 49, "listen": 50, "socketpair": 53,
            "fork": 57, "vfork": 58, "execve": 59, "execveat": 322,
            "kill": 62, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
            "mount": 165, "unshare": 272, "setns": 308,
            "keyctl": 250, "bpf": 321, "userfaultfd": 323, "perf_event_open": 298,
        },
    ),
    "aarch64": Calls(
        0xC00000B7,
        220,
        435,
        277,
        {"openat": 56, "openat2": 437},
        {
            **_EVERYWHERE,
            "socket": 198, "connect": 203, "bind": 200, "listen": 201, "socketpair": 199,
            "execve": 221, "execveat": 281,
            "kill": 129, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
            "mount": 40, "unshare": 97, "setns": 268,
            "keyctl": 219, "bpf": 280, "userfaultfd": 282, "perf_event_open": 241,
        },
    ),
}
# fmt: on


def list_allowed_paths(device: str, root: Path = Path("/")) -> Iterator[tuple[str, int]]:
    """Yields each path that a child may open, with its rights; `root` is the folder of a card's nodes."""
    # the folders of Python, its packages and this project, and that of a card's driver if it is loaded
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    folders = {sys.prefix, sys.base_prefix, *(str(Path(file).parent) for file in files if file)}
    for path in (
        *SYSTEM,
        *OWN,
        *sorted({*folders, *(str(Path(file).parent) for file in list_mapped_files("libcuda.so"))}),
    ):
        yield path, READ
    if device == "cpu":
        return
    cards, instances = list_card_nodes(root), list_instance_nodes(root)
    yield "/proc/self/task", NAME_THREADS
    for node in (*(root / name for name in NODES), *cards):
        yield str(node), COMPUTE
    for node in instances:
        yield str(node), READ_FILE
    if len(cards) > 1 or instances:
        for name in SEVERAL:
            yield str(root / name), READ


def list_card_nodes(root: Path = Path("/")) -> list[Path]:
    """Returns the nodes of the cards, /dev/nvidia0 and the like, in the order of their numbers.

    A driver that may not open one of them numbers the others anew, so all are admitted where there are several.
    """
    try:
        names = os.listdir(root / "dev")
    except OSError:
        names = []
    found = {int(match[1]): root / "dev" / name for name in names if (match := _NODE.fullmatch(name))}
    return [found[number] for number in sorted(found)]


def list_instance_nodes(root: Path = Path("/")) -> list[Path]:
    """Returns the nodes that permit the instances of cards (MIG): each is named by an `access` file of the driver."""
    access = sorted((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*/**/access"))
    minors = [match[1] for file in access if (match := re.search(r"DeviceFileMinor:\s*(\d+)", file.read_text()))]
    return [root / "dev/nvidia-caps" / f"nvidia-cap{minor}" for minor in minors]


def list_mapped_files(name: str) -> list[str]:
    """Returns the paths of the libraries in this process whose file name begins so."""
    maps = Path("/proc/self/maps")
    paths = (
        {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if "/" in line} if maps.exists() else ()
    )
    return sorted(path for path in paths if os.path.basename(path).startswith(name))
