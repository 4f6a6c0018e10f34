"""A refused command of a dispute names its remedy."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "worker/features/disputes"
COMMANDS = ("dispute_commands", "disputed_task")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_refusal_has_a_remedy(name: str) -> None:
    calls = [node for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())) if isinstance(node, ast.Call)]
    refusals = [call for call in calls if getattr(call.func, "id", "") == "Refused"]
    assert refusals
    assert [ast.unparse(call) for call in refusals if len(call.args) < 2] == []
