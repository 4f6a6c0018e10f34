"""Refusals of every service are made without one, by the field, and with the likely intention."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.market import admissible
from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec

DIGITS = json.loads((Path(__file__).parents[2] / "examples" / "digits.json").read_text())
LOCAL = {"kind": "local", "rows": 32, "steps": 4, "optimizer": {"name": "sgd", "lr": 0.1}}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"optimizer": {"name": "adamwx", "lr": 0.1}}, "optimizer.name: no 'adamwx' here; did you mean 'adamw'?"),
    ({"optimizer": {"name": "sgd", "lr": 0.1, "nesterof": 1}}, "optimizer.nesterof: "),
    ({"step": LOCAL | {"optimizer": {"name": "sgdd", "lr": 0.1}}}, "step.optimizer.name: no 'sgdd' here; did you mean"),
    ({"aggregator": {"name": "meen"}}, "aggregator.name: no 'meen' here; did you mean 'mean'?"),
    ({"aggregator": {"name": "krum", "byzantine": 5}}, "aggregator"),
    ({"uplink": {"codec": "int9"}}, "uplink.codec: no 'int9' here; did you mean 'int8'?"),
    ({"downlink": {"codec": "zip"}}, "downlink.codec: no 'zip' here; there is bf16, "),
    ({"verifier": {"name": "exacto"}}, "verifier.name: "),
    ({"price": {"name": "fixd", "amount": "5"}}, "price: no 'fixd' here; did you mean 'fixed'?"),
    ({"price": "lots"}, "price: no amount: write it like '0.01 GRAD'"),
    ({"budget": True}, "budget: "),
    ({"budget": "1"}, "budget: it pays for no round: name "),
    ({"rounds": True}, "rounds: true and false are no numbers"),
    ({"rounds": "many"}, "rounds: Input should be a valid integer\n"),
    ({"overlap": False}, "overlap: true and false are no numbers"),
    ({"step": LOCAL | {"window": True}}, "step.window: true and false are no numbers"),
    ({"optimizer": {"name": "adamw", "lr": True}}, "optimizer.lr: true and false are no numbers"),
    ({"replication": {"replicas": True}}, "replication.replicas: true and false are no numbers"),
    (
        {"optimizer": {"name": "adamw", "lr": 0.1, "zzz": 1}},
        "optimizer.zzz: no such field; the fields are lr, schedule, clip, ",
    ),
    ({"optimizer": {"name": "adamw", "lr": 0.1, "clipp": 1}}, "optimizer.clipp: no such field; did you mean 'clip'?"),
    (
        {"stop": [{"metric": "accuracy", "above": 2}]},
        "stop.0.at: Field required; stop.0.above: no such field; the fields are metric, at, better\n",
    ),
    (
        {"stop": [{"spend": "5"}]},
        "stop.0.metric: Field required; stop.0.at: Field required; "
        "stop.0.spend: no such field; the fields are metric, at",
    ),
    (
        {"data": {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "holders": ["0x" + 40 * "0"]}},
        "data.holders.0: the zero address has no owner: name another, or leave it out\n",
    ),
    (
        {"data": {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "holders": ["me"]}},
        "data.holders.0: 'me' is no address: write 0x and 40 hex digits\n",
    ),
    ({"deadlines": {"lease_s": 1}}, "deadlines.lease_s: "),
    ({"model": {"architecture": "mlpp"}}, "model.architecture: no 'mlpp' here; did you mean 'mlp'?"),
    ({"model": {"architecture": "mlp", "arguments": {"hiden": [3]}}}, "model.arguments.hiden: no such field"),
]


def test_an_example_is_admissible() -> None:
    admissible.check_job_spec(JobSpec.model_validate(DIGITS | {"price": "1000000000", "step": LOCAL}))


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_plan_refuses_what_a_service_refuses(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    """There is no service: the amounts name no token."""
    file = tmp_path / "job.json"
    file.write_text(json.dumps(DIGITS | {"price": "1000000000"} | changes))
    done = CliRunner().invoke(app, ["job", "plan", str(file)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {said}")
    assert "\nfix: " in done.stderr
    assert done.stdout == ""


def test_a_refusal_names_its_field() -> None:
    with pytest.raises(JobRefused) as refused:
        admissible.check_job_spec(JobSpec.model_validate(DIGITS | {"price": "1", "optimizer": {"name": "x", "lr": 1}}))
    assert refused.value.field == "optimizer.name"
