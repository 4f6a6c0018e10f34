"""Seconds from the wheel to the first accepted gradient (`make newcomer`), here and in a bare container.

pip finds packages where it finds them here; how many it had to fetch stands in the note of the installation.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.figure import Figure
from benchmarks.pages import ROOT
from benchmarks.rig import journey
from benchmarks.rig.wheel import built
from benchmarks.size import sized
from containers.engine import PROBE, found, why_not
from contracts import toolchain

PREFIX = "newcomer."
TARGETS: Final = {"": "<= 90", "container.": "<= 60"}
"""Of a machine that does nothing else."""
PINS: Final = ROOT / "requirements.lock"
SCRIPT: Final = Path(journey.__file__)
PLACES: Final = ("find-links", "index-url", "extra-index-url", "cert")
"""Settings of pip that may name folders of this machine."""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        wheel, anvil = built(Path(folder) / "build"), toolchain.locate_tool("anvil")
        here = Path(folder) / "here"
        here.mkdir()
        words = [str(place) for place in (wheel, PINS, anvil, here, *sized((), (sysconfig.get_path("purelib"),)))]
        yield from _figures(_ran([sys.executable, str(SCRIPT), *words]), "", "a new virtual environment")
        if sized(False, True):
            return
        if lacks := why_not():
            print(f"no bare container: {lacks}", file=sys.stderr)
            return
        command = _container(wheel, anvil)
        yield from _figures(_ran(command), "container.", f"a new container of {PROBE}")


def _ran(command: list[str]) -> list[dict[str, object]]:
    """Returns the steps that the script printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _figures(steps: list[dict[str, object]], where: str, note: str) -> Iterator[Figure]:
    total = 0.0
    for step in steps:
        seconds = float(str(step["seconds"]))
        if step["step"] == "cpu":
            yield Figure(f"newcomer.{where}cpu_s", seconds, "s", note="CPU of all steps, user and system")
            continue
        total += seconds
        fetched = f"{step['downloaded']} packages not from pip's cache of wheels" if "downloaded" in step else ""
        yield Figure(f"newcomer.{where}{step['step']}_s", seconds, "s", note=fetched)
    load = f"load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
    yield Figure(f"newcomer.{where}total_s", total, "s", target=TARGETS[where], note=f"in {note}, {load}")


def _container(wheel: Path, anvil: Path) -> list[str]:
    """A container that sees the wheel, the pins, the local chain's program, and where pip finds packages; no more."""
    inside = Path("/newcomer")
    shown = {wheel: inside / wheel.name, PINS: inside / PINS.name, SCRIPT: inside / SCRIPT.name}
    shown |= {anvil: inside / "bin" / "anvil", **{place: place for place in _of_pip()}}
    volumes = [f"--volume={here}:{there}:ro" for here, there in shown.items()]
    settings = [f"--env={name}" for name in os.environ if name.startswith("PIP_")]
    settings += [f"--env=PIP_{name.upper().replace('-', '_')}={value}" for name, value in _configured().items()]
    command = [found().program, "run", "--rm", "--network", "host", *volumes, *settings, PROBE]
    words = [shown[wheel], shown[PINS], shown[anvil], "/root"]
    return [*command, "python", str(shown[SCRIPT]), *map(str, words)]


def _configured() -> dict[str, str]:
    """Returns the package locations in pip's files and environment."""
    output = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, str] = {}
    for line in output.stdout.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in PLACES:
            found[name] = value.strip("'")
    return found


def _of_pip() -> set[Path]:
    """Returns the files and folders of this machine in which pip looks for packages, and its cache."""
    words = [word.removeprefix("file://") for value in _configured().values() for word in value.split()]
    roots = {Path(word) for word in words if word.startswith("/")}
    indexes = {path.parent for path in roots if path.name == "simple"}
    return {path for path in roots - {index / "simple" for index in indexes} | indexes if path.exists()}
