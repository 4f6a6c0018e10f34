"""Demos that `--keep` left up: each has a folder of its own among the temporary ones, and ends as a whole."""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

from contracts.processes import has_process_ended
from gradmarket.demo import service
from gradmarket.demo.children import LOOK_EVERY_S, DemoFailed
from requester.folder_lock import find_serving_process

PREFIX: Final = "gradmarket-demo-"
_MARK: Final = "kept"
LEAVE_S: Final = 30.0


def mark_kept(folder: Path) -> None:
    (folder / _MARK).touch()


def list_kept_demos(within: Path | None = None) -> list[Path]:
    """Returns this user's kept demos in `within`, by default the folder of temporary files."""
    marks = (within or Path(tempfile.gettempdir())).glob(f"{PREFIX}*/{_MARK}")
    return sorted(mark.parent for mark in marks if mark.stat().st_uid == os.getuid())


def stop_kept_demo(folder: Path) -> None:
    """Ends the service, then its chain, so that the service cannot start it again, and deletes the folder.

    Raises DemoFailed if the service does not leave.
    """
    server = find_serving_process(folder / "service")
    if server is not None:
        os.kill(server, signal.SIGTERM)
        until = time.monotonic() + LEAVE_S
        while not has_process_ended(server):
            if time.monotonic() > until:
                raise DemoFailed(f"the demo's service, process {server}, does not end within {LEAVE_S:.0f} s")
            time.sleep(LOOK_EVERY_S)
    service.stop_chain(folder / "service")
    shutil.rmtree(folder)
