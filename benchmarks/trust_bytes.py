"""Payloads sent at three replicas over one for each accepted task.

A service and workers over HTTP; every byte that a worker puts as a payload counts, whether it is taken or not.
"""

from collections.abc import Iterator
from typing import Any

from benchmarks.figure import Figure
from benchmarks.rig.service import Service, service
from benchmarks.rig.workers import HIDDEN, Spoiler, Worker, payload_of, work_until
from benchmarks.size import sized

PREFIX = "trust.bytes."
TASKS = sized(24, 2)
WORKERS = 4
REPLICATION = {"name": "fixed", "replicas": 3, "max_replicas": 5}
DEADLINES = {"lease_s": 60, "wave_s": 60, "upload_s": 5}
STANDS = ("accepted", "final")


def measure() -> Iterator[Figure]:
    yield _figure("trust.bytes.r3", Worker, target="<= 1.01")
    yield _figure("trust.bytes.r3.spoiler", Spoiler, note="; one of the workers brings wrong bytes when it is asked")


def _figure(name: str, last: type[Worker], target: str = "", note: str = "") -> Figure:
    """WORKERS honest ones, and one of the kind `last`."""
    with service(shared=False) as here:
        job = here.post(tasks_per_round=TASKS, replication=REPLICATION, deadlines=DEADLINES)
        workers = [Worker(here) for _ in range(WORKERS)] + [last(here)]
        work_until(workers, lambda: _ended(here, job))
        tasks = _tasks(here, job)
    sent, accepted = sum(worker.sent for worker in workers), sum(task["state"] in STANDS for task in tasks)
    share = sent / (accepted * len(payload_of(*HIDDEN)))
    note_text = f"{sent} bytes for {accepted} tasks{note}"
    return Figure(name, share, "payloads a task", "one from each replica", share / 3, target, note_text)


def _ended(here: Service, job: str) -> bool:
    return bool(here.get(f"jobs/{job}")["state"] != "running")


def _tasks(here: Service, job: str) -> list[dict[str, Any]]:
    """All attempts."""
    return list(here.get(f"jobs/{job}/tasks?limit=200")["items"])
