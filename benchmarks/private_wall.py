"""Wall time of the ten-holder example's rounds beside Flower's, one after the other on this machine.

Both have a server and ten holders in processes of their own on loopback. Counted is from the end of the first round to
the end of the last, so that nobody's start counts. What is done in it differs: here holders read a chain, answers
are sealed, signed, paid and settled, and loss and accuracy measured after each round; there is none of that.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks.figure import Figure
from benchmarks.private import ROUNDS, Holders
from gradmarket.demo.service import stop_chain

PREFIX = "private.wall."
EXAMPLE: Final = Path("examples") / "holders.py"
START_S, RUN_S = 120.0, 900.0


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the environment in which the service is found."""
    environment = os.environ | {"GRADMARKET_DATA": str(folder), "PYTHONPATH": str(Path.cwd())}
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "gradmarket", "serve", "--data", str(folder), "--port", "0"]
        service = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        end = time.monotonic() + START_S
        while not (folder / "url").is_file():
            if service.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no service: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.2)
        yield environment
    finally:
        service.terminate()
        service.wait()
        stop_chain(folder)


def ours(*options: str) -> list[float]:
    """Returns when each round closed, in seconds of the clock. Raises RuntimeError where the example fails."""
    with tempfile.TemporaryDirectory() as temporary, serving(Path(temporary)) as environment:
        command = [sys.executable, str(EXAMPLE), str(ROUNDS), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False)
        if done.returncode:
            raise RuntimeError(f"the example failed: {done.stderr[-500:]}")
        with httpx.Client(base_url=(Path(temporary) / "url").read_text().strip(), trust_env=False) as http:
            (job,) = http.get("/v1/jobs").json()["items"]
            rounds = http.get(f"/v1/jobs/{job['id']}/rounds", params={"limit": ROUNDS}).json()["items"]
    return sorted(datetime.fromisoformat(row["closed_at"]).timestamp() for row in rounds)


def measure() -> Iterator[Figure]:
    ends = ours()
    wall, own = ends[-1] - ends[0], [after - before for before, after in pairwise(ends)]
    flower = Holders(0).flowers()
    theirs = None if flower is None else flower.seconds
    note = f"{ROUNDS - 1} rounds of ten holders on {os.cpu_count()} cores; median round {median(own):.2f} s"
    peer = "" if theirs is None else "Flower's FedAvg"
    yield Figure(f"{PREFIX}s", wall, "s", peer, theirs and wall / theirs, note=note)
    if theirs is not None:
        yield Figure(f"{PREFIX}flower_s", theirs, "s", note="in the same run, right after")
