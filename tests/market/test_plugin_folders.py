"""Only files of the folder can be named."""

import sys
from pathlib import Path

import pytest

from gradmarket.market.errors import Refused
from graphdoc import plugins


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = tmp_path / "some_plugins"
    (package / "nested").mkdir(parents=True)
    (package / "nested" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "beta.py").write_text("VALUE = 2")
    (package / "alpha.py").write_text("VALUE = 1")
    (package / "_private.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    stale = [name for name in sys.modules if name.startswith("some_plugins")]
    for name in stale:
        monkeypatch.delitem(sys.modules, name)
    return "some_plugins"


def test_the_files_are_the_names(folder: str) -> None:
    assert plugins.list_plugin_names(folder) == ("alpha", "beta")
    assert plugins.load_plugin(folder, "beta").VALUE == 2


HOSTILE = ["gamma", "_private", "nested", "", "alpha.os", "../alpha", "os", ".alpha", "alpha\x00"]


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_is_importable(folder: str, name: str) -> None:
    with pytest.raises(Refused, match=r"[Tt]here is alpha, beta"):
        plugins.load_plugin(folder, name)


@pytest.mark.parametrize("package", ["os.path", "json.decoder", "no_such_package_here"])
def test_only_a_folder_has_plugins(package: str) -> None:
    with pytest.raises(Refused):
        plugins.list_plugin_names(package)
