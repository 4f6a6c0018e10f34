"""Which processes of this machine still work in a folder."""

from pathlib import Path

from tests.patience import wait_until


def wait_until_left(folder: Path) -> None:
    """Waits until no process names the folder."""
    wait_until(lambda: not _naming(str(folder)), lambda: _naming(str(folder)))


def _naming(folder: str) -> list[str]:
    return [line for path in Path("/proc").glob("[0-9]*/cmdline") if folder in (line := _line(path))]


def _line(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
