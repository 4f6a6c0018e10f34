"""Which processes of this machine still work in a folder."""

import time
from pathlib import Path


def left_in(folder: Path, patience_s: float = 60.0) -> list[str]:
    """Command lines that name the folder; those that are just ending get `patience_s`."""
    until = time.monotonic() + patience_s
    while (found := _naming(str(folder))) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _naming(folder: str) -> list[str]:
    return [line for path in Path("/proc").glob("[0-9]*/cmdline") if folder in (line := _line(path))]


def _line(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
