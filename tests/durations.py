"""A plug-in of pytest that writes how long each test took: `pytest -p tests.durations --durations-json PATH`.

Seconds of wall time by lane (folder of tests), file and test; a test's set-up, call and clean-up apart, since what
several tests share is paid by the first of them. Under xdist the controller writes what its workers reported.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

PHASES = ("setup", "call", "teardown")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--durations-json", type=Path, help="write the seconds of each test, by lane and file, to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("durations_json")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationsRecorder(path), "durations-recorder")


class DurationsRecorder:
    """Sums the reports of one run and writes them when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid][report.when] += report.duration

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(summarize_durations(self.seconds), indent=1) + "\n")


def summarize_durations(seconds: dict[str, dict[str, float]]) -> dict[str, object]:
    """Totals by lane and by file, and every test of 1 s or more, the slowest first. Seconds, rounded to 0.01."""
    lanes: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))
    files: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))
    for test, phases in seconds.items():
        file = test.partition("::")[0]
        lane = file.split("/")[1] if file.count("/") > 1 else "."
        for phase in PHASES:
            lanes[lane][phase] += phases[phase]
            files[file][phase] += phases[phase]
    slow = {test: phases for test, phases in seconds.items() if sum(phases.values()) >= 1.0}
    return {
        "tests": len(seconds),
        "seconds": round(sum(sum(phases.values()) for phases in seconds.values()), 2),
        "lanes": _slowest_first(lanes),
        "files": _slowest_first(files),
        "slow_tests": _slowest_first(slow),
    }


def _slowest_first(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    ranked = sorted(rows.items(), key=lambda row: -sum(row[1].values()))
    return {name: {phase: round(value, 2) for phase, value in phases.items()} for name, phases in ranked}
