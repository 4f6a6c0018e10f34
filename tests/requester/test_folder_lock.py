"""A data folder has one service: a second one is refused with the first one's process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradmarket.market.errors import Conflict, Refused
from requester.folder_lock import LOCK, lock_data_folder


def test_a_second_service_gets_the_folder_s_process_in_its_refusal(tmp_path: Path) -> None:
    second = lock_data_folder(tmp_path / "data", alone=True)
    with lock_data_folder(tmp_path / "data", alone=True), pytest.raises(Conflict) as refused:
        second.__enter__()
    assert f"process {os.getpid()}" in str(refused.value)
    assert f"kill {os.getpid()}" in refused.value.remedy
    with lock_data_folder(tmp_path / "data", alone=True):
        assert (tmp_path / "data" / LOCK).read_text() == f"{os.getpid()}\n"


def test_services_that_leave_the_stages_to_others_share_it(tmp_path: Path) -> None:
    other = lock_data_folder(tmp_path, alone=True)
    with lock_data_folder(tmp_path, alone=False), lock_data_folder(tmp_path, alone=False), pytest.raises(Conflict):
        other.__enter__()


def test_the_lock_of_a_killed_service_is_gone(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom requester.folder_lock import lock_data_folder\n"
        "with lock_data_folder(Path(sys.argv[1]), True):\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == -9
    with lock_data_folder(tmp_path, alone=True):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot be written"), lock_data_folder(tmp_path / "file" / "data", alone=True):
        raise AssertionError("in a file")
