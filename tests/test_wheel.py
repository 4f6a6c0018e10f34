"""The wheel has all that a checkout has: what is installed from it is the same programs with the same data."""

import zipfile
from pathlib import Path

import pytest

from benchmarks.rig.wheel import built, tracked
from tests.lanes import FULL
from tests.source_tree import PACKAGES

pytestmark = FULL

NOT_IN_IT = ("contracts/src/", "contracts/test/", "contracts/snapshots/", "contracts/solcjs/", "build/")
DATA = (".py", ".json", ".mako", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the wheel's files."""
    return set(zipfile.ZipFile(built(tmp_path_factory.mktemp("wheel"))).namelist())


def _is_installed(path: str) -> bool:
    """Whether a checkout's file is in the wheel, under the same path."""
    return Path(path).parts[0] in PACKAGES and not path.startswith(NOT_IN_IT) and path.endswith(DATA)


def test_every_program_and_its_data_is_in_the_wheel(packed: set[str]) -> None:
    wanted = {path for path in tracked() if _is_installed(path)}
    assert "contracts/artifacts/GradMarket.json" in wanted
    assert wanted - packed == set()


def test_nothing_else_is(packed: set[str]) -> None:
    strange = [name for name in packed if not name.startswith(("gradmarket-", *(f"{one}/" for one in PACKAGES)))]
    assert strange == []
    assert not any("node_modules" in name or "/test/" in name for name in packed)
