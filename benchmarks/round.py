"""A round without its steps: wall time from update to update, and the service's CPU.

Workers are real ones whose steps replay a recorded payload: the same bytes, votes, signatures, uploads, durable commits
and updates. One task a worker at R = 1, two workers; at R = 3 six workers, three a task. In the same run, over as many
recorded parameters: two processes over gloo, and Flower and hivemind where `make bench-peers` has installed them.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.figure import Figure
from benchmarks.rig import ddp, peers
from benchmarks.rig.rounds import GPT_10M, MLP_1M, Model, measured
from benchmarks.rig.service import service
from benchmarks.size import sized

PREFIX = "round"
PEER = "torch, two processes over gloo"
COUNT = int(os.environ.get("ROUNDS", sized("12", "1")))


@dataclass(frozen=True)
class Case:
    name: str
    model: Model
    replicas: int
    limit: str
    cpu: str = ""


CASES = (
    Case("mlp1m.r1", MLP_1M, 1, "<= 0.04"),
    Case("mlp1m.r3", MLP_1M, 3, "<= 0.06"),
    Case("gpt10m.r1", GPT_10M, 1, "<= 0.20", "<= 0.8"),
    Case("gpt10m.r3", GPT_10M, 3, "<= 0.25", "<= 0.8"),
)


def measure() -> Iterator[Figure]:
    for case in sized(CASES, CASES[:1]):
        elements, name = case.model.elements, str(case.model.optimizer["name"])
        peer = sorted(ddp.rounds(elements, name, COUNT))
        with service(shared=False) as here:
            found = measured(here, case.model, case.replicas, COUNT)
        taken = sorted(found.seconds)
        note = f"{taken[0]:.3g} to {taken[-1]:.3g} over {len(taken)}; workers' CPU {found.workers_cpu_s:.3g} s"
        ratio = median(taken) / median(peer)
        yield Figure(f"round.overhead_s.{case.name}", median(taken), "s", PEER, ratio, case.limit, note)
        note = f"the peer; {peer[0]:.3g} to {peer[-1]:.3g}"
        yield Figure(f"round.peer_s.{case.name}", median(peer), "s", note=note)
        yield from _beside(case, median(taken))
        yield Figure(f"round.cpu_s.{case.name}", found.service_cpu_s, "s", target=case.cpu, note="the service's")


def _beside(case: Case, ours: float) -> Iterator[Figure]:
    """Yields the peers' times, and the ratio of one of our rounds to theirs."""
    for peer in peers.installed():
        seconds = peer.seconds(case.model.elements, COUNT)
        note = f"{seconds[0]:.3g} to {seconds[-1]:.3g} over {len(seconds)}"
        yield Figure(f"round.{peer.name}_s.{case.name}", median(seconds), "s", note=note)
        yield Figure(f"round.over_{peer.name}.{case.name}", ours / median(seconds), "times", target="<= 1")
