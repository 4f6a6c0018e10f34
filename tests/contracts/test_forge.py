"""forge's own tests: units, fuzz, invariants; and the gas of each move, which may not grow."""

import json
import os
import subprocess
from typing import Any

import pytest

from contracts import toolchain
from tests.lanes import FULL


def _forge(profile: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Compiles the contracts first where `make develop` did not: minutes, on a busy machine many."""
    command = [str(toolchain.locate_tool("forge")), "test", *arguments]
    environment = toolchain.build_node_environment() | {"NO_COLOR": "1", "FOUNDRY_PROFILE": profile}
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(command, cwd=toolchain.HERE, env=environment, check=False, **how)


def _failures(output: str) -> list[str]:
    suites: dict[str, Any] = json.loads(output[output.index("{") :])
    return [
        f"{suite}.{test}: {result['reason']}"
        for suite, outcome in suites.items()
        for test, result in outcome["test_results"].items()
        if result["status"] != "Success"
    ]


@pytest.mark.parametrize("profile", ["short", pytest.param("long", marks=FULL)])
def test_forge_passes_and_no_move_costs_other_gas(profile: str) -> None:
    """`make test-deep` names a longer profile yet."""
    checked = ("--gas-snapshot-check", "true", "--gas-snapshot-emit", "false")
    result = _forge(os.environ.get("FOUNDRY_PROFILE", profile), "--json", *checked)
    assert "Failed to match snapshots" not in result.stdout, result.stdout[-2000:]
    assert _failures(result.stdout) == []
    assert result.returncode == 0, result.stderr[-2000:]
