"""What a test asks of a process that it does not own."""

from pathlib import Path


def is_running(pid: int) -> bool:
    """Returns whether this process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
