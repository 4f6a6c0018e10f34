"""`python -m benchmarks`: one that fails is one line, and ONLY hides no figure that a ratio was made from."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import benchmarks
from benchmarks import __main__ as command
from benchmarks import pages
from benchmarks.figure import Figure
from benchmarks.size import SMALLEST
from tests.source_tree import ROOT

WORKS: Final = """
from benchmarks.figure import Figure
PREFIX = "made.works."
def measure():
    yield Figure("made.works.ours", 3.0, "s", "theirs", 1.5, "<= 4")
    yield Figure("made.works.theirs", 2.0, "s")
"""
FAILS_LATE: Final = """
from benchmarks.figure import Figure
PREFIX = "made.late."
def measure():
    yield Figure("made.late.first", 1.0, "s")
    raise ValueError("two\\n lines")
"""
FAILS_AT_IMPORT: Final = 'PREFIX = "made.absent."\nimport no_such_module\n'
FILES: Final = {"made_absent": FAILS_AT_IMPORT, "made_late": FAILS_LATE, "made_works": WORKS}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(benchmarks, "__path__", [str(tmp_path)])
    monkeypatch.setenv("COLUMNS", "160")
    yield tmp_path
    for name in FILES:
        sys.modules.pop(f"benchmarks.{name}", None)


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["make bench", *arguments])
    return command.main()


def test_the_others_run_where_one_fails(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, "--json", str(made / "all.json")) == 1
    lines = {line["name"]: line for line in json.loads((made / "all.json").read_text())}
    assert list(lines) == ["made.absent.", "made.late.first", "made.late.", "made.works.ours", "made.works.theirs"]
    assert lines["made.absent."]["failed"] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert lines["made.late."]["failed"] == "ValueError: two lines"
    table = capsys.readouterr().out
    rows = [line.split() for line in table.splitlines() if line.startswith("│")]
    assert {row[1]: row[3] for row in rows}.items() >= {("made.late.", "failed"), ("made.absent.", "failed")}


def test_only_shows_what_a_ratio_was_made_from(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, "--only", "made.works.ours", "--json", str(made / "one.json")) == 0
    ours, theirs = json.loads((made / "one.json").read_text())
    assert (ours["peer_value"], theirs["value"]) == (2.0, 2.0)
    assert "theirs: 2 s" in capsys.readouterr().out


def test_a_name_that_nothing_has_is_an_error(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("other", "made.works.nothing"):
        assert ran(monkeypatch, "--only", name) == 1
        assert f"nothing is called {name}" in capsys.readouterr().err


def test_a_missed_target_is_an_exit_code(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (made / "made_works.py").write_text(WORKS.replace("<= 4", "<= 2"))
    assert ran(monkeypatch, "--only", "made.works") == 1
    monkeypatch.setenv(SMALLEST, "1")  # as the command sets it, and undone afterwards
    assert ran(monkeypatch, "--only", "made.works", "--smallest") == 0


def test_the_nearest_prefix_is_run() -> None:
    all_ = {"wan": "wan", "wan_peers": "wan.step_s", "wan_steps": "wan.utilisation.gpt10m", "codec": "codec."}
    assert set(command.chosen(all_, ["wan.utilisation"])) == {"wan", "wan_steps"}
    assert set(command.chosen(all_, ["wan.step_s.110_500.ddp_fp32"])) == {"wan_peers"}
    assert set(command.chosen(all_, ["wan"])) == {"wan", "wan_peers", "wan_steps"}
    assert set(command.chosen(all_, [""])) == set(all_)
    assert list(command.chosen(all_, ["codec", "wan.step_s"])) == ["wan_peers", "codec"]


def test_pages_name_every_benchmark_and_no_absent_one() -> None:
    texts = [page.read_text() for page in pages.pages()]
    named = {name for text in texts for name in re.findall(r"ONLY=([a-z0-9_.]+)", text)} - {"prefix"}
    all_ = command.prefixes()
    assert [name for name in named if not command.chosen(all_, [name.rstrip(".")])] == []
    quoted = {match["name"] for text in texts for match in pages.QUOTE.finditer(text)}
    listed = set(re.findall(r"`([a-z0-9_.]+)`", (ROOT / "docs" / "results" / "figures.md").read_text()))
    found = named | quoted | listed
    unnamed = [name for name, prefix in all_.items() if not any(each.startswith(prefix.rstrip(".")) for each in found)]
    assert unnamed == []


def test_a_failure_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([command.Failure("round", "ValueError: it broke").line()]))
    with pytest.raises(ValueError, match=r"a\.json: round failed, ValueError: it broke: measure it again"):
        pages.results(tmp_path)


def test_a_ratio_of_nothing_has_no_peer() -> None:
    assert Figure("one", 0.0, "s", "theirs", 0.0).peer_value is None
    assert Figure("one", 1.0, "s").peer_value is None
