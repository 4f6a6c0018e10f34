"""`gradmarket job plan`: a job's needs, by its own figures."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.commands.needs import CARDS, ROUND_S, START_S, smallest_card
from gradmarket.commands.resources import MEASURED
from gradmarket.market.features.private.row_budget import compute_spent_epsilon
from gradmarket.market.step import RowPrivacy
from tests.lanes import FULL
from tests.source_tree import ROOT

READY: dict[str, Any] = {
    "name": "planned",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "evaluation": {"partition": "test"},
    "step": {"kind": "local", "steps": 5, "rows": 16, "microbatch": 10, "optimizer": {"lr": 0.1}},
    "optimizer": {"lr": 0.7, "name": "nesterov"},
    "uplink": {"codec": "bf16"},
    "rounds": 3,
    "replication": {"name": "fixed"},
    "tasks_per_round": 2,
    "price": "7",
}
PARAMETERS = 64 * 8 + 8 + 8 * 10 + 10


def planned(folder: Path, spec: dict[str, Any], *options: str) -> dict[str, Any]:
    (folder / "job.json").write_text(json.dumps(spec))
    answer = CliRunner().invoke(app, ["job", "plan", str(folder / "job.json"), "--json", *options])
    assert answer.exit_code == 0, answer.output
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


def computing(takes: dict[str, Any]) -> float:
    """The seconds of a job in which its workers compute and send."""
    return float(takes["job_seconds"] - takes["start_seconds"] - takes["rounds"] * takes["overhead_seconds"])


@FULL
def test_a_ready_model_is_made_and_measured_here(tmp_path: Path) -> None:
    told = planned(tmp_path, READY, "--tflops", "2", "--mbit", "8", "--workers", "3")
    takes = told["takes"]
    passes, rows = 5 * 2, 10
    assert takes["operations"] >= passes * 3 * 2 * rows * (64 * 8 + 8 * 10)
    assert takes["download"] == 4 * PARAMETERS
    assert takes["upload"] == 2 * (PARAMETERS + 1)
    assert takes["replicas"] == 3 * 2 * 3
    assert takes["traffic_up"] == 3 * 2 * takes["upload"]
    assert takes["traffic_down"] >= takes["replicas"] * takes["download"] + 3 * 3 * takes["partition"]
    link = 8 * (takes["download"] + takes["upload"]) / 8e6
    assert takes["task_seconds"] == pytest.approx(takes["operations"] / 2e12 + link)
    overhead = takes["start_seconds"] + 3 * takes["overhead_seconds"]
    assert takes["job_seconds"] == pytest.approx(overhead + 3 * 2 * takes["task_seconds"])
    assert takes["card"] == f"{CARDS[0][0]} ({CARDS[0][1]} GB)"


BY_ROW = {"clip_norm": 1.0, "noise_multiplier": 4.0, "epsilon": 8.0, "delta": 1e-5}


def private(model: dict[str, Any]) -> dict[str, Any]:
    image = {"x": {"dtype": "float32", "shape": [1, 8, 8]}, "y": {"dtype": "int64", "classes": 10}}
    data = {"inputs": image, "holders": ["0x" + "11" * 20], "least_rows": 64}
    job = {name: value for name, value in READY.items() if name not in ("evaluation", "replication")}
    return job | {"model": model, "data": data, "tasks_per_round": 1, "step": {"rows": 16, "per_row": BY_ROW}}


def test_the_plan_has_the_epsilon_that_a_job_spends_of_a_row(tmp_path: Path) -> None:
    """64 rows, 16 a step: three rounds use no row twice, or draw each with a quarter three times."""
    asked = RowPrivacy.model_validate(BY_ROW)
    spent, drawn = compute_spent_epsilon(asked, 1), compute_spent_epsilon(asked, 3, 0.25)
    job = private({"architecture": "mlp", "arguments": {"hidden": [8]}})
    flat = planned(tmp_path, job)
    said = f"epsilon {spent:.4g} at delta 1e-05 after 3 rounds ({drawn:.4g} with sampling poisson), of a row in 1 steps"
    assert flat["row_privacy"].startswith(said)
    job["step"]["per_row"] = BY_ROW | {"sampling": "poisson"}
    said = f"epsilon {drawn:.4g} at delta 1e-05 after 3 rounds ({spent:.4g} with sampling epochs), of a row in 3 steps"
    assert planned(tmp_path, job)["row_privacy"].startswith(f"{said} that draw it with probability 0.25")
    assert flat["row_privacy"].endswith("gets noise of deviation 0.25")


def test_a_model_whose_rows_hang_together_is_refused_before_it_is_posted(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(private({"architecture": "cnn", "arguments": {"channels": [4]}})))
    answer = CliRunner().invoke(app, ["job", "plan", str(tmp_path / "job.json")])
    assert answer.exit_code != 0
    assert "(batch_norm.training) computes with all rows of a batch" in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.output


@FULL
def test_rounds_that_overlap_keep_twice_the_workers_busy(tmp_path: Path) -> None:
    one, two = (planned(tmp_path, READY | {"overlap": o}, "--workers", "12")["takes"] for o in (0, 1))
    assert computing(one) == pytest.approx(3 * one["task_seconds"])
    assert computing(two) == pytest.approx(2 * two["task_seconds"])
    assert two["overhead_seconds"] < one["overhead_seconds"] / 3
    assert (one["overlap"], two["overlap"]) == (0, 1)


@FULL
def test_rounds_that_grow_cost_what_all_their_tasks_cost(tmp_path: Path) -> None:
    """One round of two tasks, and two of six."""
    told = planned(tmp_path, READY | {"growth": [{"round": 1, "tasks": 6}]}, "--workers", "9")
    takes = told["takes"]
    assert told["tasks"] == 14
    assert told["at_most"] == str(14 * 5 * 7)
    assert takes["replicas"] == 14 * 3
    assert takes["traffic_up"] == 14 * takes["upload"]
    assert computing(takes) == pytest.approx((1 + 2 * 2) * takes["task_seconds"])


@FULL
def test_the_plan_counts_updates_of_all_rounds_since_a_worker_s_last_task(tmp_path: Path) -> None:
    """Six replicas a round: of six workers each has a task a round, of twelve in every other, of sixty hardly any."""
    small = READY | {"downlink": {"codec": "int8"}}
    six, twelve, sixty = (planned(tmp_path, small, "--workers", count)["takes"] for count in ("6", "12", "60"))
    update = 32 + 4 + -(-PARAMETERS // 64) + PARAMETERS
    assert [takes["download"] for takes in (six, twelve, sixty)] == [update, 2 * update, 4 * PARAMETERS]
    partitions = planned(tmp_path, READY, "--workers", "6")["takes"]["traffic_down"] - 18 * 4 * PARAMETERS
    assert six["traffic_down"] == 18 * update + 6 * 4 * PARAMETERS + partitions


@FULL
def test_the_plan_s_mean_download_includes_the_first_rounds_longer_updates(tmp_path: Path) -> None:
    """One round of three has int8, and the others int4."""
    downlink = {"codec": "int4", "first": {"codec": "int8", "rounds": 1}}
    takes = planned(tmp_path, READY | {"downlink": downlink}, "--workers", "6")["takes"]
    blocks = -(-PARAMETERS // 64)
    early, late = 32 + 4 + blocks + PARAMETERS, 32 + 4 + blocks * (1 + 32)
    assert takes["download"] == (early + 2 * late) // 3


RESULTS = ROOT / "benchmarks" / "results"


def measured(file: str) -> dict[str, float]:
    return {one["name"]: one["value"] for one in json.loads((RESULTS / f"{file}.json").read_text())}


def test_the_time_of_a_round_is_what_was_measured() -> None:
    """Steps of one second, of models of 1 and 10.8 million parameters; GPT-2's start from its post to its rounds."""
    found = measured("overlap")
    for (several, overlap), points in ROUND_S.items():
        for model, (_, seconds) in zip(("", "gpt10m."), points, strict=True):
            took = found[f"overlap.round_s.{model}r{3 if several else 1}.{overlap}"] - 1
            assert seconds == pytest.approx(took, abs=0.006), (several, overlap, model)
    begins, each_million = START_S
    assert begins == pytest.approx(measured("newcomer")["newcomer.container.job_s"], rel=0.05)
    assert begins + each_million * MEASURED / 1e6 == pytest.approx(
        98 - 3 * measured("large")["large.round_s.r1"], rel=0.05
    )


def test_a_plan_needs_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_DATA", str(tmp_path / "none"))
    (tmp_path / "job.json").write_text(json.dumps(READY | {"price": "0.5 GRAD"}))
    plain = CliRunner().invoke(app, ["job", "plan", str(tmp_path / "job.json"), "--parameters", "1e6"])
    assert plain.exit_code == 0, plain.stderr
    assert "at most  15 GRAD" in plain.stdout
    assert "no service answers" in plain.stdout
    digest = f"blake3:{'0' * 64}"
    elsewhere = planned(tmp_path, READY | {"data": {"manifest": digest}})
    assert "takes" not in elsewhere
    assert elsewhere["limits"][0].startswith("its needs are unknown without its model and data")


def test_large_models_are_answered_by_their_number_of_parameters(tmp_path: Path) -> None:
    """By hand: 4 bytes each way, parameters and gradient kept, 6 operations for each parameter and row."""
    job = READY | {"step": {"rows": 4}, "uplink": {"codec": "fp32"}}
    one, seven = (planned(tmp_path, job, "--parameters", number) for number in ("1e9", "7e9"))
    for told, billions in ((one, 1), (seven, 7)):
        takes, parameters = told["takes"], billions * 10**9
        assert takes["operations"] == 24 * parameters
        assert (takes["download"], takes["memory"]) == (4 * parameters, 8 * parameters)
        assert takes["upload"] == pytest.approx(4 * parameters, rel=1e-6)
    assert (one["takes"]["card"], seven["takes"]["card"]) == ("RTX 3060 (12 GB)", "H100 (80 GB)")
    assert not any("GRADMARKET_MAX_BLOB_BYTES" in limit for limit in one["limits"])
    assert any("GRADMARKET_MAX_BLOB_BYTES" in limit for limit in seven["limits"])
    local = {"kind": "local", "steps": 5, "rows": 16, "optimizer": {"name": "adamw", "lr": 0.1}}
    memory = planned(tmp_path, READY | {"step": local}, "--parameters", "7e9")
    assert memory["takes"]["memory"] == 16 * 7 * 10**9
    assert memory["takes"]["card"] == "H200 (141 GB)" or not memory["takes"]["card"]


def test_the_card_is_the_smallest_that_fits() -> None:
    assert [size for _, size in CARDS] == sorted(size for _, size in CARDS)
    assert smallest_card(0) == "RTX 3050 (8 GB)"
    assert smallest_card(8 * 10**9) == "RTX 3060 (12 GB)"
    assert smallest_card(50 * 10**9) == "H100 (80 GB)"
    assert smallest_card(200 * 10**9) == ""
