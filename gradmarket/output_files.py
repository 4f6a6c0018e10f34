"""Files that a command is to write once its work is done."""

from pathlib import Path

from gradmarket.market.errors import Refused


def check_writable(path: Path) -> Path:
    """Returns the path if a file can be written there. Raises Refused, so that no work is done in vain."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise Refused(f"{path} cannot be written: there is no folder {folder}", "make the folder, or name another file")
    if path.is_dir():
        raise Refused(f"{path} is a folder", "name a file")
    return path
