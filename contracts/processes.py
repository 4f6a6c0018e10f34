"""Looks up Linux processes by id: whether one has ended, which files it has open, where it listens (proc(5))."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTEN: Final = "0A"


def has_process_ended(pid: int) -> bool:
    """Returns whether the process has ended with all its threads, reaped or not, so that its files are closed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def own_name() -> str:
    """Returns a name that is unique across machines: boot id, pid namespace, process id and start time."""
    return " ".join((*_id_space(), str(os.getpid()), _read_start_time(os.getpid())))


def known_ended(name: str) -> bool:
    """Returns whether the process with this `own_name` has ended; False if its ids cannot be looked up here."""
    words = name.split(" ")
    if len(words) != 4 or words[:2] != _id_space():
        return False
    pid, started = int(words[2]), words[3]
    return has_process_ended(pid) or _read_start_time(pid) != started


def has_open_file(pid: int, path: Path) -> bool:
    """Returns whether the process has the file open."""
    return os.path.realpath(path) in _open_files(pid)


def listening_port(pid: int) -> int | None:
    """Returns the IPv4 TCP port that the process listens on; None if there is none."""
    sockets = {name[len("socket:[") : -1] for name in _open_files(pid) if name.startswith("socket:[")}
    try:
        rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    for _, local, _, state, *_, inode in (row.split()[:10] for row in rows):
        if state == _LISTEN and inode in sockets:
            return int(local.rpartition(":")[2], 16)
    return None


def _id_space() -> list[str]:
    return [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]


def _read_start_time(pid: int) -> str:
    """Returns the start time in clock ticks since boot; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _open_files(pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    try:
        entries = os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    targets = set[str]()
    for entry in entries:
        with suppress(OSError):  # the file was closed meanwhile
            targets.add(os.readlink(f"{folder}/{entry}"))
    return targets
