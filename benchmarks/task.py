"""The service's CPU for a whole task, from lease to voucher.

Service and database are processes of their own, their CPU time read from the system. Workers are simulated here, with
real signatures and one payload, so that nothing but the control plane is measured. `leases`: a worker's replicas in
flight, whose leases, commitments and reveals share a request; `ahead`: it asks for more of them meanwhile. `workers`:
workers at the same time, whose simultaneous requests share a transaction. The peer is Celery's no-op on Redis in the
same run: worker and Redis, a task.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.figure import Figure
from benchmarks.rig import noop
from benchmarks.rig.service import Service, service
from benchmarks.rig.workers import Worker, work
from benchmarks.size import sized

PREFIX = "task"
PEER = "Celery no-op"
SAMPLES = sized(5, 1)
TASKS = sized(160, 4)
"""In one sample."""
CROWD = sized(16, 3)
"""Workers, where as many as a market has are meant."""


@dataclass(frozen=True)
class Case:
    name: str
    replicas: int
    leases: int
    workers: int
    crowded: bool
    limit: str
    ahead: bool = False


CASES = (
    Case("r1", 1, 1, CROWD, True, "<= 3"),
    Case("r1.few", 1, 1, 2, True, "<= 3"),
    Case("r1.ahead", 1, 4, CROWD, True, "<= 3", ahead=True),
    Case("r1x10", 1, 10, CROWD, True, "<= 1.5"),
    Case("r3", 3, 1, CROWD, True, "<= 9"),
    Case("r3x10", 3, 10, CROWD, True, "<= 9"),
    Case("sqlite.r1", 1, 1, CROWD, False, ""),
    Case("sqlite.r1x10", 1, 10, CROWD, False, ""),
)


def measure() -> Iterator[Figure]:
    peer = noop.measured(*sized((300, 50), (5, 1)))
    yield Figure("task.celery_cpu_ms", peer.cpu_ms, "ms", note=f"the peer; {peer.per_s:.0f} tasks/s")
    yield from _counted()
    for case in sized(CASES, CASES[-2:-1]):
        with service(case.crowded) as here:  # of its own: a draw waits for idle workers of the case before
            yield from _measured(here, case, peer)


def _counted() -> Iterator[Figure]:
    """Database statements of a task, with the sweeps of the seconds that it takes."""
    with service(shared=True, counted=True) as here:
        for leases, limits in ((1, ("<= 30", "<= 6")), (10, ("<= 10", "<= 1"))):
            tasks = 3 * (TASKS + CROWD * leases)
            here.post(replication={"name": "fixed", "replicas": 1, "max_replicas": 1}, tasks_per_round=tasks)
            shared = [Worker(here, leases, alone=True) for _ in range(CROWD)]
            work(shared, TASKS // 2)
            here.counts()
            done, counts = work(shared, TASKS), here.counts()
            for (kind, found), limit in zip(sorted(counts.items()), limits, strict=True):
                most = ", ".join(f"{name} {count / done:.1f}" for name, count in Counter(found).most_common(5))
                yield Figure(f"task.{kind}.r1x{leases}", sum(found.values()) / done, "a task", target=limit, note=most)


def _measured(here: Service, case: Case, peer: noop.Cost) -> Iterator[Figure]:
    """Milliseconds of CPU a task, the median of the samples."""
    begun = 2 * CROWD * case.leases if case.ahead else CROWD * case.leases
    tasks = (TASKS + begun) * (SAMPLES + 2)
    replication = {"name": "fixed", "replicas": case.replicas, "max_replicas": case.replicas}
    here.post(replication=replication, tasks_per_round=tasks)
    alone = case.replicas == 1
    shared = [Worker(here, case.leases, ahead=case.ahead, alone=alone) for _ in range(case.workers)]
    work(shared, TASKS * case.replicas)
    costs, rates = [], []
    for _ in range(SAMPLES):
        before, began = here.cpu_s(), time.perf_counter()
        done = work(shared, TASKS * case.replicas) / case.replicas
        costs.append(1000 * (here.cpu_s() - before) / done)
        rates.append(done / (time.perf_counter() - began))
    cost, rate = median(costs), median(rates)
    note = f"{min(costs):.3g} to {max(costs):.3g}; {case.workers} workers"
    against = cost / peer.cpu_ms if peer.cpu_ms else None  # the smallest run is shorter than that clock's tick
    yield Figure(f"task.cpu_ms.{case.name}", cost, "ms", PEER, against, case.limit, note)
    yield Figure(f"task.per_s.{case.name}", rate, "1/s", PEER, rate / peer.per_s, note=note)
