"""Rounds over data that is partly slow for everybody: by the service's rules nothing of it is left out."""

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.simulation.skew import SkewPlay, SkewScenario
from tests.lanes import FULL

SMALL = {"partitions": 10, "rows": 16, "task_rows": 4, "tasks_per_round": 10, "min_tasks": 8, "epochs": 6}


@FULL
@given(
    seed=st.integers(0, 10**6),
    staleness=st.integers(0, 4),
    slower=st.floats(1, 20),
    least=st.integers(1, 10),
    slow=st.floats(0.05, 0.9),
)
def test_every_row_counts_once_an_epoch_however_slow(
    seed: int, staleness: int, slower: float, least: int, slow: float
) -> None:
    changes = {"seed": seed, "staleness": staleness, "slower": slower, "min_tasks": least, "slow": slow}
    scenario = SkewScenario.model_validate(SMALL | changes)
    played = SkewPlay(scenario, "ours")
    found = played.run()
    assert Counter(count for uses in found.uses for count in uses) == {scenario.epochs: 10 * 16}
    assert found.worst_share(played.slow) == 1.0
    waited = SkewPlay(scenario, "wait").run()
    assert waited.uses == found.uses


@FULL
def test_dropping_the_slowest_drops_the_data_that_is_slow() -> None:
    scenario = SkewScenario()
    plays = {policy: SkewPlay(scenario, policy) for policy in ("ours", "drop", "wait")}  # type: ignore[arg-type]
    slow, found = plays["ours"].slow, {policy: play.run() for policy, play in plays.items()}
    assert found["drop"].worst_share(slow) < 0.1
    assert sum(found["drop"].losses[-slow:]) > 10 * sum(found["ours"].losses[-slow:])
    assert found["ours"].seconds < 0.7 * found["wait"].seconds
    assert found["ours"].worst_share(slow) == found["wait"].worst_share(slow) == 1.0


def test_a_play_can_be_repeated_exactly() -> None:
    scenario = SkewScenario.model_validate(SMALL)
    assert SkewPlay(scenario, "ours").run() == SkewPlay(scenario, "ours").run()
    assert SkewPlay(scenario, "ours").run() != SkewPlay(SkewScenario.model_validate(SMALL | {"seed": 1}), "ours").run()


def test_the_command_draws_what_it_played(tmp_path: Path) -> None:
    scenario, picture = tmp_path / "scenario.json", tmp_path / "skew.svg"
    scenario.write_text(json.dumps(SMALL))
    words = ["simulate", str(scenario), "--skew", "--picture", str(picture)]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [one["policy"] for one in found["outcomes"]] == ["ours", "drop", "wait"]
    assert found["outcomes"][0]["worst_share"] == 1.0
    bars = ElementTree.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}rect")
    assert len(list(bars)) == 1 + 3 + 2 * 3 * 10
    assert "drop the slowest" in CliRunner().invoke(app, words).output


@pytest.mark.parametrize(
    "words", [["--picture", "x.svg"], ["--skew", "--workers", "5"], ["--skew", "--policy", "boinc"]]
)
def test_arguments_that_a_play_does_not_take_are_refused(words: list[str]) -> None:
    refused = CliRunner().invoke(app, ["simulate", *words])
    assert refused.exit_code == 2
    assert "Traceback" not in refused.output
