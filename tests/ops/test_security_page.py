"""docs/security.md: each threat names tests, and each test that is named is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/.]+)::(\w+)`", PAGE)))


def functions(path: Path) -> set[str]:
    text = path.read_text()
    if path.suffix == ".sol":
        return set(re.findall(r"function (\w+)", text))
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[f"{path}-{name}" for path, name in NAMED])
def test_a_named_test_is_there(path: str, name: str) -> None:
    assert name in functions(ROOT / path)


def test_every_threat_names_a_test() -> None:
    section = PAGE[PAGE.index("## A dishonest worker") :]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    assert len(rows) > 30
    assert [row for row in rows if "::" not in row] == []
