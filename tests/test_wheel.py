"""The wheel has all that a checkout has: what is installed from it is the same programs with the same data."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.source_tree import ROOMS, ROOT

NOT_IN_IT = ("contracts/src/", "contracts/test/", "contracts/snapshots/", "contracts/solcjs/", "build/")
DATA = (".py", ".json", ".mako", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the wheel's files."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for path in _tracked():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes((ROOT / path).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True, capture_output=True)
    (wheel,) = folder.glob("gradmarket-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


def _installed(path: str) -> str | None:
    """The path under which a checkout's file is installed."""
    if path.startswith(NOT_IN_IT) or not path.endswith(DATA):
        return None
    room = Path(path).parts[0]
    return f"gradmarket/{path}" if room in ROOMS else path if room == "gradmarket" else None


def test_every_program_and_its_data_is_in_the_wheel(packed: set[str]) -> None:
    wanted = {installed for path in _tracked() if (installed := _installed(path))}
    assert "gradmarket/contracts/artifacts/GradMarket.json" in wanted
    assert wanted - packed == set()


def test_nothing_else_is(packed: set[str]) -> None:
    strange = [name for name in packed if not name.startswith(("gradmarket/", "gradmarket-"))]
    assert strange == []
    assert not any("node_modules" in name or "/test/" in name for name in packed)
