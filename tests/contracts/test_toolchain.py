"""Programs are found on the PATH first, then where the installer puts them; a missing one is named with its fix."""

import subprocess
from pathlib import Path

import pytest

from contracts import toolchain


def _program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _program(tmp_path, "anvil")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.locate_tool("anvil") == mine


@pytest.mark.parametrize("tool", ["anvil", "cast", "forge", "node"])
def test_each_program_is_found_off_the_path_and_runs(
    tool: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    subprocess.run([toolchain.locate_tool(tool), "--version"], stdout=subprocess.DEVNULL, check=True)


def test_a_missing_program_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(toolchain.ToolMissing, match="chisel is not on the PATH") as missing:
        toolchain.locate_tool("chisel")
    assert "make install" in missing.value.remedy


def test_a_wheel_without_a_checkout_names_another_remedy_than_make_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(toolchain, "CHECKOUT", tmp_path / "Makefile")
    with pytest.raises(toolchain.ToolMissing) as missing:
        toolchain.locate_tool("chisel")
    assert "make install" not in missing.value.remedy
    assert "--rpc" in missing.value.remedy


def test_the_environment_runs_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    environment = toolchain.build_node_environment()
    answer = subprocess.run(["node", "--version"], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("v")
