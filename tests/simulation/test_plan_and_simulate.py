"""`gradmarket simulate` and `gradmarket job plan --trust`, as a person types them."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.market.features.loss_change import BLIND, RUNS
from gradmarket.market.job import JobSpec
from gradmarket.trust.scored_forecast import compute_scored_forecast, play_noise
from tests.lanes import FULL

RUNNER = CliRunner()
SCORED: dict[str, Any] = {
    "verifier": {"name": "loss_change"},
    "replication": {"name": "audited", "audit": 0.5},
    "tasks_per_round": 8,
}
EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "digits.json")


@pytest.fixture
def voted(tmp_path: Path) -> str:
    """The example under a plain majority vote."""
    path = tmp_path / "voted.json"
    path.write_text(json.dumps(json.loads(Path(EXAMPLE).read_text()) | {"replication": {"name": "fixed"}}))
    return str(path)


def run_json(*words: str) -> Any:
    result = RUNNER.invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*words: str) -> str:
    result = RUNNER.invoke(app, list(words))
    assert result.exit_code == 2
    return result.output


def test_a_plan_has_the_odds_that_colluders_decide(voted: str) -> None:
    found = run_json("job", "plan", voted, "--trust", "--json")
    wrong = [row["wrong_per_task"] for row in found["trust"]["rows"]]
    assert wrong == pytest.approx([0.028, 0.104, 0.216, 0.5])
    assert found["trust"]["rows"][0]["tasks_until_caught"] is None
    assert found["trust"]["deterrence"]["least_audit"] is None
    few = run_json("job", "plan", voted, "--trust", "--json", "--workers", "16", "--colluders", "0.4375")
    assert few["trust"]["rows"][0]["wrong_per_task"] == pytest.approx(0.4)


@FULL
def test_a_plan_has_a_ring_s_gains_under_it_and_under_others(voted: str) -> None:
    """3f / (1 - (1 - f)^3) for sharing, and 3f / 3f(1 - f)^2 for computing only where the ring does not decide."""
    found = run_json("job", "plan", voted, "--trust", "--json")["trust"]
    assert [row["sharing_pay"] for row in found["rows"]] == pytest.approx([1.107, 1.230, 1.370, 1.714], abs=1e-3)
    assert [row["lying_pay"] for row in found["rows"]] == pytest.approx([1.2346, 1.5625, 2.0408, 4.0], abs=1e-3)
    others = {other["plan"]: other["rows"] for other in found["others"]}
    assert others["majority of 3 to 5"] == found["rows"]
    assert [row["sharing_pay"] for row in others["one, audited at 10 %"]] == [1.0] * 4
    assert {row["lying_pay"] for row in others["one, audited at 10 %"]} == {None}
    assert [row["wrong_at_end"] for row in others["one, audited at 10 %"]] == pytest.approx([0.09, 0.18, 0.27, 0.45])
    assert {row["wrong_at_end"] for row in others["one, audited always"]} == {0.0}
    unanimous = [row["wrong_at_end"] for row in others["proven: 3, audited at 20 %"]]
    assert unanimous == pytest.approx([0.0008, 0.0064, 0.0216, 0.1]), "f^3, of which a fifth is audited"
    told = " ".join(RUNNER.invoke(app, ["job", "plan", EXAMPLE, "--trust"]).output.split())
    assert "(no vote or audit sees it)" in told
    assert "another identity, which is free" in told


@FULL
def test_a_plan_plays_patient_late_quick_and_flooding_rings_with_intervals(voted: str) -> None:
    """The oracle of the vote: two of three among 18 of 60 are (C(18,2) 42 + C(18,3)) / C(60,3) = 21.2 % of tasks."""
    asked = ("--trust", "--json", "--colluders", "0.3")
    rings = {}
    for name, file in (("proven", EXAMPLE), ("vote", voted)):
        played = run_json("job", "plan", file, *asked)["trust"]["played"]
        assert (played["workers"], played["plays"]) == (60, 10)
        rings[name] = {ring["ring"]: ring["wrong"][0] for ring in played["rings"]}
        assert rings[name].keys() >= {"patient", "late", "late_two", "instant_unanimous", "flood"}
    vote, proven = rings["vote"]["quorum"], rings["proven"]
    assert abs(vote["mean"] - 0.212) <= vote["half"]
    assert rings["vote"]["flood"]["mean"] > 0.7
    assert all(wrong["mean"] - wrong["half"] <= 0.01 for wrong in proven.values())
    assert proven["late_two"]["mean"] == 0.0, "all of the last two rounds is audited"
    assert run_json("job", "plan", voted, *asked, "--audit", "0.1")["trust"]["played"] is None
    told = " ".join(RUNNER.invoke(app, ["job", "plan", EXAMPLE, "--trust", "--colluders", "0.3"]).output.split())
    assert "the same in the last 20 rounds" in told
    assert "± is the interval of 95 % of the mean" in told
    assert "R f for 1 - (1 - f)^R" in told


@FULL
def test_a_plan_of_proven_workers_has_its_audits_and_a_newcomer_s_first_pay(tmp_path: Path) -> None:
    """The example has rounds of 4 tasks: a turn of a newcomer comes in every second round."""
    job = json.loads(Path(EXAMPLE).read_text()) | {"replication": {"name": "proven"}, "tasks_per_round": 4}
    short, long = tmp_path / "short.json", tmp_path / "long.json"
    short.write_text(json.dumps(job | {"rounds": 20}))
    long.write_text(json.dumps(job | {"rounds": 100}))
    found = run_json("job", "plan", str(short), "--json")
    back = "one that fails has the answers of 20 rounds audited, and all of the 5 rounds after it"
    last = "all of the last 2 rounds, where one answers alone"
    assert found["audits"] == f"35% of unanimous tasks, {last}; 20% would do in a long job; {back}"
    assert (
        "the k-th in the queue is first paid within 4 k rounds, and k at once vote after about 32 k" in found["joining"]
    )
    usual = f"20% of unanimous tasks, {last}"
    assert run_json("job", "plan", str(long), "--json")["audits"] == f"{usual}; {back}"
    long.write_text(json.dumps(job | {"rounds": 100, "audit": {"probability": 0.1, "final_after": 2}}))
    assert "of 2 rounds audited, fewer than 20: lies" in run_json("job", "plan", str(long), "--json")["audits"]
    long.write_text(json.dumps(job | {"replication": {"name": "fixed"}}))
    assert "audits" not in run_json("job", "plan", str(long), "--json")


def test_stakes_and_audits_deter_where_p_is_over_what_a_lie_gains(voted: str) -> None:
    price = json.loads(Path(EXAMPLE).read_text())["price"]
    audited = ("job", "plan", voted, "--trust", "--json", "--audit", "0.05", "--stake")
    assert run_json(*audited, str(65 * int(price)))["trust"]["deterrence"]["deterred"] is True
    assert run_json(*audited, str(15 * int(price)))["trust"]["deterrence"]["deterred"] is False
    found = run_json(*audited, str(65 * int(price)), "--benefit", str(3 * int(price)))["trust"]
    assert found["deterrence"]["least_audit"] == pytest.approx(4 / 65)
    assert found["rows"][0]["tasks_until_caught"] == pytest.approx(1 / (0.05 * 0.028))


def test_the_job_s_own_audits_count_unless_others_are_asked_about(tmp_path: Path) -> None:
    job = json.loads(Path(EXAMPLE).read_text())
    voted, alone = tmp_path / "voted.json", tmp_path / "alone.json"
    voted.write_text(json.dumps(job | {"audit": {"probability": 0.05}, "replication": {"name": "fixed"}}))
    alone.write_text(json.dumps(job | {"replication": {"name": "audited", "audit": 0.25}}))
    words = ("job", "plan", str(voted), "--trust", "--stake", str(65 * int(job["price"])))
    found = run_json(*words, "--json")
    assert found["assumed"]["audit"] == 0.05
    assert found["trust"]["deterrence"]["deterred"] is True
    assert found["trust"]["rows"][0]["tasks_until_caught"] == pytest.approx(1 / (0.05 * 0.028))
    assert "p > (c + B) / S: 0.05 > " in RUNNER.invoke(app, list(words)).output
    assert run_json(*words, "--json", "--audit", "0")["trust"]["rows"][0]["tasks_until_caught"] is None
    row = run_json("job", "plan", str(alone), "--trust", "--json")["trust"]["rows"][0]
    assert (row["wrong_per_task"], row["compute"]) == pytest.approx((0.1, 1.25))


def test_a_plan_has_the_odds_of_audits_by_windows(tmp_path: Path) -> None:
    """One wrong window of thirty is the lie that they find most rarely, and the cost is that of repeated windows."""
    job = json.loads(Path(EXAMPLE).read_text()) | {"replication": {"name": "audited", "audit": 0.25}}
    step = {"kind": "local", "steps": 30, "rows": 4, "optimizer": {"lr": 0.1}}
    file, whole = tmp_path / "job.json", tmp_path / "whole.json"
    file.write_text(json.dumps(job | {"step": step | {"window": 1}}))
    whole.write_text(json.dumps(job | {"step": step}))
    found, before = (run_json("job", "plan", str(one), "--trust", "--json")["trust"] for one in (file, whole))
    assert before["windows"] is None
    assert found["windows"] == pytest.approx({"count": 30, "share": 2 / 30, "found": 1 / 29})
    row, full = found["rows"][0], before["rows"][0]
    assert row["tasks_until_caught"] == pytest.approx(29 * full["tasks_until_caught"])
    assert (row["compute"], full["compute"]) == pytest.approx((1 + 0.25 * 2 / 30, 1.25))
    told = RUNNER.invoke(app, ["job", "plan", str(file), "--trust"]).output
    assert "two of a task's 30 windows" in " ".join(told.split())


def test_the_picture_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "trust.svg"
    result = RUNNER.invoke(app, ["job", "plan", EXAMPLE, "--svg", str(path), "--workers", "20"])
    assert "wrong task" in result.output
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg")
    assert len([element for element in root if element.tag.endswith("polyline")]) == 5


def test_a_simulation_is_printed_and_reproducible(tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({"workers": 20, "tasks": 100, "history": 200}))
    words = ("simulate", str(file), "--mix", "sleeper=0.2", "--seed", "3", "--json")
    first = run_json(*words)
    assert first == run_json(*words)
    assert first["scenario"]["mix"] == {"sleeper": 0.2}
    assert first["outcome"]["tasks"] >= 100
    assert first["outcome"]["kinds"]["sleeper"]["lies"] > 0
    assert "accepted and never caught" in RUNNER.invoke(app, ["simulate", str(file)]).output


@FULL
def test_a_plan_names_the_lies_that_scores_do_not_see(tmp_path: Path) -> None:
    file, job = tmp_path / "scored.json", json.loads(Path(EXAMPLE).read_text()) | SCORED
    file.write_text(json.dumps(job))
    assert "a backdoor in a few rows" in run_json("job", "plan", str(file), "--json")["not_seen"]
    assert "loss_change scores them" in refused("job", "plan", str(file), "--svg", str(tmp_path / "odds.svg"))
    told = run_json("job", "plan", str(file), "--trust", "--json")["trust"]
    assert "a backdoor in a few rows" in told["not_seen"]
    assert [row["honest"] for row in told["rows"]] == [0.95, 0.8, 0.6]
    assert "no score sees" in RUNNER.invoke(app, ["job", "plan", str(file), "--trust"]).output.replace("\n", " ")
    file.write_text(json.dumps(job | {"replication": {"name": "fixed"}}))
    assert "set replication to" in refused("job", "plan", str(file))


@pytest.mark.parametrize(
    ("honest", "most", "scores", "paid"), [(0.95, 0.03, (5, 4), BLIND), (0.6, 0.06, (36, 17), 1 - (1 - BLIND) ** 2)]
)
def test_scores_bound_noise_under_any_number_of_wallets(
    honest: float, most: float, scores: tuple[int, int], paid: float
) -> None:
    """The twin is the time before anything is known: noise has all of its places."""
    spec = JobSpec.model_validate(json.loads(Path(EXAMPLE).read_text()) | SCORED | {"rounds": 1000})
    assert play_noise(spec, 1000, honest, seed=1) <= most
    assert play_noise(spec, RUNS // spec.tasks_per_round, honest, seed=1) == 1 / 4
    found = next(row for row in compute_scored_forecast(spec).rows if row.honest == honest)
    assert (round(found.until_convicted), round(found.until_cleared)) == scores
    assert found.noise_paid == pytest.approx(paid)


def test_senseless_arguments_of_plan_and_simulate_are_refused_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text("[]")
    assert "share from 0 to 1" in refused("job", "plan", EXAMPLE, "--trust", "--colluders", "1.5")
    assert "no strategy liar" in refused("simulate", "--mix", "liar=0.5")
    assert "KIND=SHARE" in refused("simulate", "--mix", "liar")
    assert "not a JSON object" in refused("simulate", str(file))
    assert "there is no file" in refused("simulate", str(tmp_path / "none.json"))
    assert "no 'none' here" in refused("simulate", "--policy", "none", "--workers", "2", "--tasks", "1")


@FULL
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"audit": None}, "only audits use windows"),
        (
            {"verifier": {"name": "tolerance"}, "replication": {"replicas": 3, "max_replicas": 3}},
            "compared by bits",
        ),
        ({"replication": {"name": "adaptive"}}, "adaptive counts audits of whole tasks"),
        ({"step": {"window": 16}}, "1 of 16 steps each make a task of 16"),
    ],
)
def test_a_plan_refuses_windows_that_no_audit_repeats(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    windowed = {"kind": "local", "steps": 16, "rows": 64, "optimizer": {"lr": 0.01}, "window": 4}
    job = json.loads(Path(EXAMPLE).read_text()) | {"audit": {"probability": 0.1}, "step": windowed}
    job |= {"replication": {"name": "fixed"}}
    mine = tmp_path / "job.json"
    mine.write_text(json.dumps(job))
    assert run_json("job", "plan", str(mine), "--json")["tasks"] == 120
    mine.write_text(json.dumps(job | changed | {"step": windowed | changed.get("step", {})}))
    assert f"error: step.window: {why}" in refused("job", "plan", str(mine)).replace("a state is ", "")


@pytest.mark.parametrize("option", ["--min-price", "--min-per-tflop", "--min-per-hour"])
def test_a_worker_s_malformed_amount_is_refused_with_an_example(option: str, tmp_path: Path) -> None:
    told = refused("worker", "run", "--data", str(tmp_path), option, "lots")
    assert f"error: {option}: 'lots' is no amount: write it like '0.01 GRAD'" in told
    assert f"fix: name another value for {option}" in told
    assert not list(tmp_path.iterdir()), "no wallet was made for nothing"
