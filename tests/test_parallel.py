"""`pytest --processes N` on a folder of its own: every test once, whatever a process that runs some comes to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.source_tree import ROOT

CONFTEST = """
import os
import pytest
from tests.parallel import Processes

pytest_plugins = ["tests.durations", "tests.parallel"]


def pytest_configure(config):
    config.pluginmanager.register(Processes(lambda files: [[file] for file in files], preloaded=()), "processes")


@pytest.fixture(scope="session")
def process():
    yield os.getpid()
    with open("ended", "a") as told:
        told.write("x")
"""
SHARING = """
import os


def test_one(process):
    assert process == os.getpid()


def test_two(process):
    assert process == os.getpid()
"""


def run(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in ({"conftest.py": CONFTEST, "pytest.ini": "[pytest]"} | files).items():
        (folder / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--processes",
        "2",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        ".",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def test_each_file_is_run_once_and_a_session_s_fixture_lasts_as_long_as_its_process(tmp_path: Path) -> None:
    ran = run(tmp_path, {f"test_{number}.py": SHARING for number in range(5)})
    assert ran.returncode == pytest.ExitCode.OK, ran.stdout + ran.stderr
    assert "10 passed" in ran.stdout
    assert (tmp_path / "ended").read_text() in ("x", "xx")


@pytest.mark.parametrize(
    ("spoilt", "told"),
    [
        ("def test_wrong():\n    print('its words')\n    assert False", ["1 failed, 4 passed", "its words"]),
        ("import os\n\n\ndef test_gone():\n    os._exit(7)", ["4 passed", "1 error", "test_spoilt.py ended with 7"]),
        ("import nowhere", ["4 passed", "1 error", "No module named 'nowhere'"]),
    ],
    ids=["a test fails", "a process ends", "a file is not read"],
)
def test_what_goes_wrong_in_a_file_fails_the_run_and_the_others_are_run(
    tmp_path: Path, spoilt: str, told: list[str]
) -> None:
    ran = run(tmp_path, {"test_a.py": SHARING, "test_spoilt.py": spoilt, "test_z.py": SHARING})
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
    assert [words for words in told if words not in ran.stdout] == []
