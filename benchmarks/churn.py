"""Workers killed by SIGKILL and replaced while a job runs.

Every minute two of six workers are killed in any state, and two fresh ones take their place. The survivors then compute
the same job undisturbed. Leases last 20 s: after that a killed worker's goes to another. Where a worker takes minutes
to start, PERIOD, WORKERS and REPLACED set another pace.
"""

import math
import os
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figure import Figure
from benchmarks.rig.service import Service, service
from benchmarks.rig.worker_processes import kill, start_worker
from benchmarks.size import sized

PREFIX = "churn"
WORKERS, REPLACED = int(os.environ.get("WORKERS", sized("6", "2"))), int(os.environ.get("REPLACED", sized("2", "1")))
PERIOD_S = float(os.environ.get("PERIOD", sized("60", "0")))
MOST_KILLED = sized(math.inf, 1)
"""Limits the kills of the smallest run, so that replacements live until they begin."""
ROUNDS = int(os.environ.get("ROUNDS", sized("40", "3")))
STEP_S, LEASE_S = sized(2.0, 0.1), sized(20, 5)
ENDED_S = sized(2 * LEASE_S, 1)
"""Seconds in which committed answers are judged."""
JOB: dict[str, Any] = {
    "seed": 11,
    "rounds": ROUNDS,
    "tasks_per_round": 4,
    "optimizer": {"name": "adamw", "lr": 0.01},
    "replication": {"name": "fixed", "replicas": 1, "max_replicas": 1},
    "deadlines": {"lease_s": LEASE_S, "wave_s": LEASE_S, "upload_s": LEASE_S},
}
LATEST_S, BEGUN_S = 1800.0, sized(30, -LEASE_S)


@dataclass
class Crowd:
    """`running` by folder; `killed` are folders too."""

    here: Service
    step_s: float
    running: dict[Path, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    killed: list[Path] = field(default_factory=list)

    def start(self, count: int) -> None:
        for _ in range(count):
            process, folder = start_worker(self.here, self.step_s)
            self.running[folder] = process

    def kill(self, count: int, chance: random.Random) -> None:
        for folder in chance.sample(sorted(self.running), count):
            kill(self.running.pop(folder))
            self.killed.append(folder)

    def end(self) -> None:
        for process in self.running.values():
            kill(process)


def measure() -> Iterator[Figure]:
    with service(shared=False) as here:
        crowd = Crowd(here, STEP_S)
        try:
            crowd.start(WORKERS)
            disturbed, undisturbed = (_played(here, crowd, killing) for killing in (True, False))
        finally:
            crowd.end()
        yield from _figures(here, disturbed, crowd, _digest(here, undisturbed) == _digest(here, disturbed))


def _played(here: Service, crowd: Crowd, killing: bool) -> str:
    """Returns the job once it is over and committed answers are judged. No kill before the first round ends."""
    job, chance, due = here.post(**JOB), random.Random(7), None
    began = time.monotonic()
    while here.get(f"jobs/{job}")["state"] == "running":
        now = time.monotonic()
        if now - began > LATEST_S:
            raise TimeoutError(str(here.get(f"jobs/{job}")))
        if due is None and here.rows("SELECT 1, 0 FROM rounds WHERE job_id = ? AND state = 'closed'", job):
            due = now + PERIOD_S
        if killing and due is not None and now > due and len(crowd.killed) < MOST_KILLED:
            due += PERIOD_S
            crowd.kill(REPLACED, chance)
            crowd.start(REPLACED)
        time.sleep(0.5)
    time.sleep(ENDED_S)
    return job


def _figures(here: Service, job: str, crowd: Crowd, same: bool) -> Iterator[Figure]:
    rounds = [after for after, _ in here.rows("SELECT closed_at - opened_at, 0 FROM rounds WHERE job_id = ?", job)]
    note = f"{len(crowd.killed)} of {WORKERS} killed and replaced, {REPLACED} every {PERIOD_S:g} s, in {ROUNDS} rounds"
    yield Figure("churn.same_digest", float(same), "", target=">= 1", note=f"as one undisturbed worker's; {note}")
    (lost,) = here.rows(LOST, job)
    yield Figure("churn.lost", lost[0], "gradients", target="<= 0", note=f"of {lost[1]} accepted or answered in time")
    (left,) = here.rows(LEFT, job)
    yield Figure(
        "churn.left", left[0], "leases", note=f"held by who was killed, and given to others; at most {left[1]}"
    )
    joined = [first for first, _ in here.rows(JOINED, job)]
    ratio = median(joined) / median(rounds)
    churn_note = f"median of {len(joined)}, from sign-in to the first accepted gradient; a round {median(rounds):.3g} s"
    yield Figure("churn.join_rounds", ratio, "rounds", note=churn_note)


LOST = """SELECT count(*) FILTER (WHERE e.id IS NULL), count(*) FROM replicas r JOIN tasks t ON t.id = r.task_id
LEFT JOIN earned e ON e.replica_id = r.id
WHERE r.job_id = ? AND r.state IN ('payable', 'agree', 'rejected', 'inconclusive', 'revealed')"""
"""Answers that were revealed and have no pay, of all: every worker is honest here."""
LEFT = """SELECT count(*), (SELECT max(held) FROM (SELECT count(*) AS held FROM replicas
WHERE job_id = ?1 AND state IN ('expired', 'withheld', 'leased', 'committed') GROUP BY worker)) || ' by one'
FROM replicas WHERE job_id = ?1 AND state IN ('expired', 'withheld', 'leased', 'committed')"""
JOINED = f"""SELECT min(e.at) - w.joined_at, 0 FROM earned e JOIN workers w ON w.address = e.worker
WHERE e.job_id = ?1 AND w.joined_at > (SELECT min(opened_at) + {BEGUN_S} FROM rounds WHERE job_id = ?1)
GROUP BY e.worker"""
"""Workers that came when the job had run for BEGUN_S."""


def _digest(here: Service, job: str) -> object:
    query = "SELECT number, updated FROM rounds WHERE job_id = ? ORDER BY number DESC LIMIT 1"
    return here.rows(query, job)
