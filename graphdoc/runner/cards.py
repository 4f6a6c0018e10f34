"""The cards of this machine, listed by a child that starts the driver: a fault there ends the child alone.

Run as `python -I -m graphdoc.runner.cards <probe as JSON>`. It prints Cards as JSON.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from graphdoc.errors import Refused
from graphdoc.runner.confine import MEASURES, confine_process
from graphdoc.runner.driver import Cards, Driver, Management
from graphdoc.runner.settings import VISIBLE, RunnerSettings, build_child_environment
from graphdoc.runner.watched_start import Refusals, ask_parent, watch_child

COMMAND: Final = (sys.executable, "-I", "-m", "graphdoc.runner.cards")
START_S: Final = 60
_CARDS: Final = TypeAdapter(Cards)
_ANYWHERE: Final = Path(os.sep)
_LOOK: Final = "look at the card's driver: nvidia-smi, dmesg"


@dataclass(frozen=True)
class DriverProbe:
    """The way in which the driver starts: free, or confined like a computing child while `watcher` decides its
    calls."""

    watcher: int | None = None
    root: str = os.sep


def list_cards() -> Cards:
    """Returns the cards that CUDA_VISIBLE_DEVICES leaves here, in PCI order; the driver starts unconfined."""
    return _run_probe(DriverProbe())


def start_confined(root: Path = _ANYWHERE) -> tuple[Cards, Refusals]:
    """Returns the cards seen by a child confined like a computing one, and the refusals of its confinement."""
    with watch_child("cuda", root) as watch:
        cards = _run_probe(DriverProbe(watch.descriptor, str(root)))
    return cards, watch.refusals


def _run_probe(probe: DriverProbe) -> Cards:
    environment = build_child_environment(RunnerSettings(device="cuda"))
    del environment[VISIBLE]
    environment |= {VISIBLE: os.environ[VISIBLE]} if VISIBLE in os.environ else {}
    descriptors = () if probe.watcher is None else (probe.watcher,)
    try:
        done = subprocess.run(
            [*COMMAND, json.dumps(asdict(probe))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
            pass_fds=descriptors,
        )
    except subprocess.TimeoutExpired:
        return Cards(fault=f"the driver does not start within {START_S} s", remedy=_LOOK)
    try:
        return _CARDS.validate_json(done.stdout)
    except ValidationError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Cards(fault=f"the driver's start ended the process: {last}"[:300], remedy=_LOOK)


def find_cards(probe: DriverProbe) -> Cards:
    """Starts the driver, in the child, and returns its cards, or why it has none."""
    try:
        driver, management = Driver(), Management()
        version = management.read_driver_version() or ""
        if probe.watcher is not None:
            confined = [measure for measure in MEASURES if measure != "calls"]
            confine_process(os.getppid(), False, "cuda", RunnerSettings().memory_bytes, Path(probe.root), confined)
            ask_parent(probe.watcher)
        driver.start()
        cards = [replace(card, free=management.read_free_bytes(card.uuid)) for card in driver.list_cards()]
    except Refused as error:
        return Cards(fault=error.detail, remedy=error.remedy)
    return Cards(version, tuple(cards))


if __name__ == "__main__":
    sys.stdout.buffer.write(_CARDS.dump_json(find_cards(DriverProbe(**json.loads(sys.argv[1])))))  # its parent reads it
