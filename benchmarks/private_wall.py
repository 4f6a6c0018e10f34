"""Wall time of the ten-holder example's rounds over Flower's.

All have a server and ten holders in processes of their own on loopback: ours, Flower's legacy loop, which its makers
have deprecated, and Flower as it is deployed now, by a SuperLink and ten SuperNodes. Counted is from the end of the
first round on, so that nobody's start counts. The work of a round differs: here holders read a chain, answers are
sealed, signed, paid and settled, and loss and accuracy measured; Flower's holders are not checked and not paid.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks.figure import Figure
from benchmarks.private import ROUNDS, Deployed, Holders
from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import serving
from benchmarks.size import sized

PREFIX = "private.wall."
EXAMPLE: Final = Path("examples") / "holders.py"
RUN_S: Final = 900.0
HOLDERS: Final = {"": "3", "--secure": "5"}
"""Of the smallest run, with an option or without one: secure sums bear that one of five drops out."""
DEPLOYED_ROUNDS: Final = sized(5, 1)
"""Each takes many seconds."""


def ours(*options: str) -> list[float]:
    """Returns when each round closed, in seconds of the clock. Raises RuntimeError where the example fails."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environment = os.environ | {"GRADMARKET_DATA": str(folder), "PYTHONPATH": str(Path.cwd())}
        stack.enter_context(serving(["gradmarket"], folder, environment))
        command = [sys.executable, str(EXAMPLE), str(ROUNDS), *sized((), (HOLDERS["".join(options)],)), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False)
        if done.returncode:
            raise RuntimeError(f"the example failed: {done.stderr[-500:]}")
        with httpx.Client(base_url=(folder / "url").read_text().strip(), trust_env=False, timeout=PATIENCE_S) as http:
            (job,) = http.get("/v1/jobs").json()["items"]
            rounds = http.get(f"/v1/jobs/{job['id']}/rounds", params={"limit": ROUNDS}).json()["items"]
    return sorted(datetime.fromisoformat(row["closed_at"]).timestamp() for row in rounds)


def measure() -> Iterator[Figure]:
    ends = ours()
    wall, own = ends[-1] - ends[0], [after - before for before, after in pairwise(ends)]
    flower, deployed = Holders(0).flowers(), Holders(0).flowers_deployed(DEPLOYED_ROUNDS)
    theirs = None if flower is None else flower.seconds
    note = f"{ROUNDS - 1} rounds of ten holders on {os.cpu_count()} cores; median round {median(own):.2f} s"
    peer = "" if theirs is None else "Flower's legacy loop"
    yield Figure(f"{PREFIX}s", wall, "s", peer, theirs and wall / theirs, note=note)
    if theirs is not None:
        yield Figure(f"{PREFIX}flower_s", theirs, "s", note="in the same run, right after")
    if deployed is not None:
        yield from _beside_deployed(median(own), deployed)


def _beside_deployed(own: float, deployed: Deployed) -> Iterator[Figure]:
    """A round of ours over one of Flower with a SuperLink and ten SuperNodes, which is how Flower is deployed."""
    least, most = min(deployed.seconds), max(deployed.seconds)
    note = f"{least:.3g} to {most:.3g} over {len(deployed.seconds)}; accuracy {deployed.accuracy:.3f} after the last"
    theirs = median(deployed.seconds)
    yield Figure(f"{PREFIX}flower_deployed_round_s", theirs, "s", note=note)
    yield Figure(f"{PREFIX}over_flower_deployed", own / theirs, "times", target="<= 1", note=f"median {own:.3g} s here")
