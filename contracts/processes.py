"""What Linux tells of a process by its id: whether it is gone, what it holds open, where it listens (proc(5))."""

import os
from pathlib import Path
from typing import Final

_LISTEN: Final = "0A"


def gone(pid: int) -> bool:
    """Whether the process has ended with all its threads, reaped or not: what it held open is closed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def holds(pid: int, path: Path) -> bool:
    """Whether the process has the file open."""
    return os.path.realpath(path) in _open_files(pid)


def listening_port(pid: int) -> int | None:
    """The IPv4 TCP port that the process listens on; None while there is none."""
    sockets = {name[len("socket:[") : -1] for name in _open_files(pid) if name.startswith("socket:[")}
    try:
        rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    for _, local, _, state, *_, inode in (row.split()[:10] for row in rows):
        if state == _LISTEN and inode in sockets:
            return int(local.rpartition(":")[2], 16)
    return None


def _open_files(pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    try:
        entries = os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    return {target for entry in entries if (target := _target(f"{folder}/{entry}"))}


def _target(link: str) -> str:
    """Empty where the file was closed meanwhile."""
    try:
        return os.readlink(link)
    except OSError:
        return ""
