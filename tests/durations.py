"""A plug-in of pytest that writes how long each test took: `pytest --durations-json PATH`.

Seconds of wall time by lane (folder of tests), file and test; a test's set-up, call and clean-up apart, since what
several tests share is paid by the first of them. `cpu` is the processor time of the test's process and of all children
that ended meanwhile: those that several tests share count at their end. It hardly depends on what else runs beside it.
Under xdist the controller writes what its workers reported.
"""

import json
import resource
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Final

import pytest

PHASES: Final = ("setup", "call", "teardown")
CPU: Final = "cpu"
COMMITTED: Final = Path(__file__).with_suffix(".json")
SLOW_S: Final = 1.0

Seconds = dict[str, float]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--durations-json", type=Path, help="write the seconds of each test, by lane and file, to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("durations_json")
    if path is None:
        return
    config.pluginmanager.register(CpuClock(), "cpu-clock")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationsRecorder(path), "durations-recorder")


class CpuClock:
    """Adds to each report the processor time since the one before."""

    def __init__(self) -> None:
        self._spent = spent_cpu()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._spent = self._spent, spent_cpu()
        report.cpu = self._spent - before  # type: ignore[attr-defined]
        return report


def spent_cpu() -> float:
    """Seconds of processor time that this process and its ended children took."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class DurationsRecorder:
    """Sums the reports of one run and writes them when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, Seconds] = defaultdict(lambda: dict.fromkeys((*PHASES, CPU), 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid][report.when] += report.duration
        self.seconds[report.nodeid][CPU] += getattr(report, CPU)

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(summarize_durations(self.seconds), indent=1) + "\n")


def load_file_seconds() -> dict[str, float]:
    """Returns how long each file took in the run of `make test` that is committed."""
    files: dict[str, Seconds] = json.loads(COMMITTED.read_text())["files"]
    return {name: sum(took[phase] for phase in PHASES) for name, took in files.items()}


def summarize_durations(seconds: dict[str, Seconds]) -> dict[str, object]:
    """Totals by lane and by file, and every test of a second or more, the slowest first. Rounded to 0.01 s."""
    return {
        "tests": len(seconds),
        "total": _total(seconds.values()),
        "lanes": _by(seconds, _lane),
        "files": _by(seconds, lambda test: test.partition("::")[0]),
        "slow_tests": _slowest_first({test: each for test, each in seconds.items() if _cost(each) >= SLOW_S}),
    }


def _lane(test: str) -> str:
    file = test.partition("::")[0]
    return file.split("/")[1] if file.count("/") > 1 else "."


def _by(seconds: dict[str, Seconds], group: Callable[[str], str]) -> dict[str, Seconds]:
    groups: dict[str, list[Seconds]] = defaultdict(list)
    for test, each in seconds.items():
        groups[group(test)].append(each)
    return _slowest_first({name: _total(rows) for name, rows in groups.items()})


def _total(rows: Iterable[Seconds]) -> Seconds:
    sums = dict.fromkeys((*PHASES, CPU), 0.0)
    for row in rows:
        for name, value in row.items():
            sums[name] += value
    return {name: round(value, 2) for name, value in sums.items()}


def _slowest_first(rows: dict[str, Seconds]) -> dict[str, Seconds]:
    return {name: _total([row]) for name, row in sorted(rows.items(), key=lambda row: -_cost(row[1]))}


def _cost(row: Seconds) -> float:
    """The greater of processor time and wall time is what a test keeps others waiting for."""
    return max(row[CPU], sum(row[phase] for phase in PHASES))
