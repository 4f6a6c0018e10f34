"""The contract, a chain seen from Python, and folders that their owner alone may enter: of keys, of a database."""

from contextlib import suppress
from pathlib import Path
from typing import Final

OTHERS: Final = 0o077
GROUP: Final = 0o027
"""Permission bits denied to others, and those denied where a proxy of the folder's group reads it."""


def private_folder(path: Path, hidden: int = OTHERS) -> None:
    """Makes the folder, or closes an existing one to others. Another user's folder stays unchanged."""
    path.mkdir(parents=True, exist_ok=True, mode=0o777 & ~hidden)
    if path.stat().st_mode & hidden:
        with suppress(PermissionError):
            path.chmod(path.stat().st_mode & ~hidden & 0o777)
