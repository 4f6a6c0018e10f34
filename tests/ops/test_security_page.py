"""docs/security.md and docs/attacks: each attack names tests, and each test that is named is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ATTACKS = "".join(path.read_text() for path in sorted((ROOT / "docs" / "attacks").glob("*.md")))
NAMED = sorted(set(re.findall(r"`([\w/.]+)::(\w+)`", ATTACKS + (ROOT / "docs" / "security.md").read_text())))


def functions(path: Path) -> set[str]:
    text = path.read_text()
    if path.suffix == ".sol":
        return set(re.findall(r"function (\w+)", text))
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[f"{path}-{name}" for path, name in NAMED])
def test_a_test_named_on_the_security_page_exists(path: str, name: str) -> None:
    assert name in functions(ROOT / path)


def test_every_attack_names_a_test() -> None:
    rows = [line for line in ATTACKS.splitlines() if line.startswith("- ")]
    assert len(rows) > 70
    assert [row for row in rows if "::" not in row] == []
