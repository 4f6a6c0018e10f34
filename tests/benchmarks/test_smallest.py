"""Every benchmark at its smallest size, by the command: all in one process, with shared imports."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.__main__ import prefixes
from tests.chromium import CHROMIUM
from tests.lanes import FULL

PREFIXES: Final = prefixes()
MEASURED: Final = re.compile(r"measured (\S+) in [\d.]+ s")
NAMESPACES: Final = os.geteuid() == 0 and os.access("/dev/net/tun", os.R_OK | os.W_OK) and bool(shutil.which("ip"))
NEEDS: Final = {
    "page": pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    "wan_peers": pytest.mark.skipif(not NAMESPACES, reason="no network namespaces: it takes root, ip and /dev/net/tun"),
}
CASES: Final = [pytest.param(name, marks=(NEEDS[name],) if name in NEEDS else ()) for name in PREFIXES]
pytestmark = FULL


class Run:
    """`python -m benchmarks --smallest` of some benchmarks, and its output so far."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._json, self._said, self._ended = folder / "figures.json", list[str](), set[str]()
        only = [PREFIXES[name] for name in names]
        command = [sys.executable, "-m", "benchmarks", "--smallest", "--json", str(self._json), "--only", *only]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def figures(self, prefix: str) -> list[dict[str, object]]:
        """Returns the lines of a benchmark once it is over."""
        assert self._process.stderr is not None
        while prefix not in self._ended:
            line = self._process.stderr.readline()
            assert line, f"{prefix} was not measured:\n{''.join(self._said[-40:])}"
            self._said.append(line)
            if over := MEASURED.fullmatch(line.strip()):
                self._ended.add(over[1])
        return [line for line in json.loads(self._json.read_text()) if line["name"].startswith(prefix)]

    def log(self) -> str:
        return "".join(self._said[-40:])

    def end(self) -> None:
        self._process.terminate()
        self._process.communicate()


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    own = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    names = [item.callspec.params["name"] for item in own if not any(map(_skips, item.iter_markers("skipif")))]
    begun = Run(tmp_path_factory.mktemp("smallest"), names)
    yield begun
    begun.end()


def _skips(mark: pytest.Mark) -> bool:
    return bool(mark.args[0])


@pytest.mark.parametrize("name", CASES)
def test_every_benchmark_runs_at_its_smallest_size(run: Run, name: str) -> None:
    found = run.figures(PREFIXES[name])
    assert found, run.log()
    assert [line["failed"] for line in found if "failed" in line and line["name"] == PREFIXES[name]] == [], run.log()
