"""`job plan` of a job that vests: the locked pay, its burners, and a lie's loss by it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "digits.json"
JUDGES = ["0x" + "11" * 20, "0x" + "22" * 20]


def plan(folder: Path, **more: Any) -> dict[str, Any]:
    file = folder / "job.json"
    file.write_text(json.dumps(json.loads(EXAMPLE.read_text()) | {"price": "1000"} | more))
    done = CliRunner().invoke(app, ["job", "plan", str(file), "--parameters", "1000", "--json"])
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        (16, "loses 3.2 prices on average and saves one: lying pays less than honest work"),
        (4, "loses 0.8 prices on average and saves one: lying pays all the same: audit more, or lock more prices"),
    ],
)
def test_a_plan_has_the_vest_s_terms_and_its_deterrence(tmp_path: Path, prices: int, words: str) -> None:
    vesting = {"prices": prices, "validators": JUDGES, "threshold": 2, "bond": "500"}
    told = plan(tmp_path, vesting=vesting, audit={"probability": 0.2}, replication={"name": "fixed"})["vest"]
    assert f"the last {prices} prices of each worker's pay stay locked for 24 h" in told
    assert "2 of 2 validators burn them" in told
    assert "a bond of 0.5 prices" in told
    assert f"At p = 20% a lie of a worker with all of that locked {words}" in told


def test_a_plan_without_a_vest_has_no_line_of_it(tmp_path: Path) -> None:
    assert "vest" not in plan(tmp_path)
