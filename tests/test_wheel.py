"""The wheel has all that a checkout has: what is installed from it is the same programs with the same data."""

import zipfile
from pathlib import Path

import pytest

from benchmarks.rig.wheel import built, tracked
from tests.lanes import FULL
from tests.source_tree import ROOMS

pytestmark = FULL

NOT_IN_IT = ("contracts/src/", "contracts/test/", "contracts/snapshots/", "contracts/solcjs/", "build/")
DATA = (".py", ".json", ".mako", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the wheel's files."""
    return set(zipfile.ZipFile(built(tmp_path_factory.mktemp("wheel"))).namelist())


def _installed(path: str) -> str | None:
    """The path under which a checkout's file is installed."""
    if path.startswith(NOT_IN_IT) or not path.endswith(DATA):
        return None
    room = Path(path).parts[0]
    return f"gradmarket/{path}" if room in ROOMS else path if room == "gradmarket" else None


def test_every_program_and_its_data_is_in_the_wheel(packed: set[str]) -> None:
    wanted = {installed for path in tracked() if (installed := _installed(path))}
    assert "gradmarket/contracts/artifacts/GradMarket.json" in wanted
    assert wanted - packed == set()


def test_nothing_else_is(packed: set[str]) -> None:
    strange = [name for name in packed if not name.startswith(("gradmarket/", "gradmarket-"))]
    assert strange == []
    assert not any("node_modules" in name or "/test/" in name for name in packed)
