"""Pay an hour as promised before a worker joins, over its pay then.

Real processes, whose steps sleep, so that the joining worker takes no processor from the others. `alone`: rounds of one
task that one worker took so far. `crowd`: three workers share rounds of eight. `votes`: each task takes three answers.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.figure import Figure
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import Service, service
from benchmarks.rig.worker_processes import kill, start_worker
from benchmarks.size import sized

PREFIX = "expected_pay."
STEP_S: Final = sized(2.0, 0.1)
BEFORE_ROUNDS: Final = sized(6, 2)
WATCHED_S: Final = sized(90.0, 2.0)
SINGLE: Final = {"name": "fixed", "replicas": 1, "max_replicas": 1}
THREE: Final = {"name": "fixed", "replicas": 3, "max_replicas": 3}
CASES: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "alone": (1, {"tasks_per_round": 1, "replication": SINGLE}),
    "crowd": (3, {"tasks_per_round": 8, "replication": SINGLE}),
    "votes": (3, {"tasks_per_round": 2, "replication": THREE}),
}


def measure() -> Iterator[Figure]:
    ratios = []
    for name, (workers, changes) in islice(CASES.items(), sized(None, 1)):
        with service(shared=False) as here:
            ratio, note = _played(here, workers, changes)
        ratios.append(ratio)
        yield Figure(f"expected_pay.ratio.{name}", ratio, "", note=note)
    yield Figure("expected_pay.ratio.least", min(ratios), "", target=">= 0.8", note="of all the above")
    yield Figure("expected_pay.ratio.most", max(ratios), "", target="<= 1.2", note="of all the above")


def _played(here: Service, workers: int, changes: dict[str, Any]) -> tuple[float, str]:
    """Returns the expected pay over the earned, and both amounts."""
    job = here.post(rounds=2000, deadlines={"lease_s": 60, "wave_s": 60, "upload_s": 60}, **changes)
    with _working(here, workers):
        _until(lambda: (here.get(f"jobs/{job}")["round"] or 0) >= BEFORE_ROUNDS)
        with _working(here, 1) as (log,):
            _until(lambda: bool(_events(log, "estimate")))
            estimates = _events(log, "estimate")
            _until(lambda: bool(_events(log, "accepted")))
            began, before = time.monotonic(), len(_events(log, "accepted"))
            time.sleep(WATCHED_S)
            _until(lambda: len(_events(log, "accepted")) > before)
            paid, took = _events(log, "accepted")[before:], time.monotonic() - began
    expected, earned = int(estimates[-1]["expected"]), sum(int(one["price"]) for one in paid) * 3600 / took
    return expected / earned, f"{len(paid)} gradients in {took:.0f} s beside {workers} workers"


@contextmanager
def _working(here: Service, count: int) -> Iterator[list[Path]]:
    """So many workers, and their logs."""
    started = [start_worker(here, STEP_S) for _ in range(count)]
    try:
        yield [folder / "log" for _, folder in started]
    finally:
        for process, _ in started:
            kill(process)


def _events(log: Path, event: str) -> list[dict[str, Any]]:
    lines = (line for line in log.read_text().splitlines() if line.startswith(f'{{"event": "{event}"'))
    return [json.loads(line) for line in lines if line.endswith("}")]


def _until(holds: Callable[[], bool]) -> None:
    latest = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > latest:
            raise TimeoutError("the workers did not get so far")
        time.sleep(0.2)
