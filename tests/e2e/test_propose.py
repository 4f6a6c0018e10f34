"""`gradmarket job propose`: the job that it prints can be posted, takes as many steps and costs as much."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.commands.proposal import propose_field_of_cards
from gradmarket.market.job import JobSpec
from gradmarket.market.step import GradientStep, LocalStep
from tests.lanes import FULL

JOB: dict[str, Any] = {
    "name": "proposed",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"rows": 16, "microbatch": 10},
    "optimizer": {"lr": 0.01, "name": "adamw", "schedule": {"name": "cosine", "warmup": 7}},
    "rounds": 600,
    "replication": {"name": "fixed"},
    "tasks_per_round": 2,
    "price": "7",
}


def run_propose(folder: Path, job: dict[str, Any], *options: str) -> Result:
    (folder / "job.json").write_text(json.dumps(job))
    return CliRunner().invoke(app, ["job", "propose", str(folder / "job.json"), *options])


def test_over_a_slow_link_a_task_takes_many_steps(tmp_path: Path) -> None:
    answer = run_propose(tmp_path, JOB, "--tflops", "0.0001", "--down", "1", "--up", "0.2")
    assert answer.exit_code == 0, answer.output
    spec = JobSpec.model_validate_json(answer.stdout)
    assert isinstance(spec.step, LocalStep)
    assert (spec.step.rows, spec.step.microbatch) == (16, 10)
    assert spec.step.steps > 10
    assert 600 <= spec.rounds * spec.step.steps < 600 + spec.step.steps
    assert spec.price.most == 7 * spec.step.steps
    assert (spec.step.optimizer.name, spec.step.optimizer.lr) == ("adamw", 0.01)
    assert (spec.step.optimizer.schedule.name, spec.step.optimizer.schedule.warmup) == ("cosine", 7)
    assert spec.optimizer.name == "nesterov"
    assert spec.uplink.codec == spec.downlink.codec == "two_bit"
    assert [line.partition(":")[0] for line in answer.stderr.splitlines()] == [
        "steps",
        "codec",
        "rounds",
        "optimizer",
        "price",
    ]


@FULL
def test_a_fast_link_changes_only_the_named_codecs(tmp_path: Path) -> None:
    answer = run_propose(tmp_path, JOB, "--tflops", "1e-6", "--down", "100000", "--up", "100000")
    assert answer.exit_code == 0, answer.output
    spec = JobSpec.model_validate_json(answer.stdout)
    assert isinstance(spec.step, GradientStep)
    links = {"uplink": {"codec": "fp32"}, "downlink": {"codec": "fp32"}}
    assert json.loads(answer.stdout) == JOB | links | deadlines(answer.stdout)


def deadlines(printed: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(printed).items() if name == "deadlines"}


@FULL
def test_the_steps_of_local_steps_are_proposed_anew(tmp_path: Path) -> None:
    local = {"kind": "local", "rows": 16, "steps": 3, "rewarm": 1, "optimizer": {"lr": 0.1}}
    job = JOB | {"step": local, "optimizer": {"name": "nesterov", "lr": 0.5}, "rounds": 200}
    answer = run_propose(tmp_path, job, "--tflops", "0.0001", "--down", "1", "--up", "0.2")
    assert answer.exit_code == 0, answer.output
    printed = json.loads(answer.stdout)
    assert printed["optimizer"] == job["optimizer"]
    assert printed["step"]["optimizer"] == {"lr": 0.1}
    assert printed["rounds"] == -(-600 // printed["step"]["steps"])


@pytest.mark.parametrize("growth", [[{"round": 5, "tasks": 3}]])
def test_a_job_that_grows_is_refused(tmp_path: Path, growth: list[dict[str, int]]) -> None:
    answer = run_propose(tmp_path, JOB | {"growth": growth})
    assert answer.exit_code != 0


CARD, CPU = "cuda/sm_90/cuda-13.0", "cpu/x86_64/avx2"


@pytest.mark.parametrize(
    ("job", "classes", "proposed"),
    [
        (JOB, {CARD: 2, CPU: 1}, {"precision": "bf16"}),
        (JOB, {CARD: 1, CPU: 1}, {}),
        (JOB, {}, {}),
        (JOB | {"precision": "fp32"}, {CARD: 2}, {}),
        (JOB | {"precision": "tf32"}, {CARD: 2}, {}),
        (JOB | {"arithmetic": "reproducible"}, {CARD: 2}, {}),
        (JOB | {"model": {"document": "blake3:" + "1" * 64, "parameters": "blake3:" + "2" * 64}}, {CARD: 2}, {}),
    ],
)
def test_a_precision_is_proposed_for_the_present_workers(
    job: dict[str, Any], classes: dict[str, int], proposed: dict[str, Any]
) -> None:
    assert propose_field_of_cards(job, JobSpec.model_validate(job), classes) == proposed
