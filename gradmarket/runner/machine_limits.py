"""The cores and the memory that this machine's system and control groups leave this process."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")
LEAST_MEMORY: Final = 2**28


def count_cores(root: Path = ROOT) -> float:
    """Returns how many cores this process may use: by its affinity, or less where its control group has a quota."""
    found, groups = [float(len(os.sched_getaffinity(0)))], root / "sys/fs/cgroup"
    for place in _own_groups(root, "cpu"):  # of either version
        quota, _, period = _read_stripped(groups / place / "cpu.max").partition(" ")
        if not quota:
            quota = _read_stripped(groups / "cpu" / place / "cpu.cfs_quota_us")
            period = _read_stripped(groups / "cpu" / place / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            found.append(int(quota) / int(period))
    return min(found)


def _own_groups(root: Path, kind: str) -> Iterator[Path]:
    """Yields the paths of this process's group and those around it; the outermost, which a container sees as `.`."""
    lines = (line.split(":", 2) for line in _read_stripped(root / "proc/self/cgroup").splitlines())
    for _, kinds, path in (line for line in lines if len(line) == 3):
        if not kinds or kind in kinds.split(","):
            own = Path(path.lstrip("/"))
            yield from (own, *own.parents)
    yield Path()


def _read_stripped(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def choose_memory(root: Path = ROOT) -> int:
    """Returns the default memory limit of a step, in bytes: half of this machine's or its control group's."""
    total = re.search(r"^MemTotal:\s+(\d+) kB$", _read_stripped(root / "proc/meminfo"), re.MULTILINE)
    found, groups = [int(total[1]) * 1024] if total else [], root / "sys/fs/cgroup"
    for place in _own_groups(root, "memory"):  # of either version
        for file in (groups / place / "memory.max", groups / "memory" / place / "memory.limit_in_bytes"):
            if (limit := _read_stripped(file)).isdigit():
                found.append(int(limit))
    return max(LEAST_MEMORY, min(found, default=0) // 2)
