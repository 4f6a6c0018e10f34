"""Data that no worker can compute, and claims that nothing can be computed: their victims, and their cost."""

from typing import Any

import numpy as np

from gradmarket.market.features.fault_reports import LEAST, MANY
from gradmarket.market.manifest import Column, Manifest, Partition
from gradmarket.market.terms import blob_digest
from gradmarket.market.wire.poll import FaultKind, LeaseReturn, StepFault
from graphdoc import tensors
from graphdoc.encoding import canonical
from tests.attacks.hired import hired
from tests.attacks.registry import attack
from tests.attacks.scene import UNIT, Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.attacks.tiny import ROWS
from tests.handmade import encoded, node, tensor, value
from tests.kit.behaviour import HONEST, Behaviour
from tests.kit.scripted import Held
from tests.patience import wait_until

BAD_ROW = StepFault(kind=FaultKind.STEP_FAILED, node="node 1 (nll_loss.default)", partition="train", input="y", row=17)

PAIR = {"name": "fixed", "replicas": 2, "max_replicas": 2}
SINGLE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
IDLE = Behaviour(commits=False)
SAME = Behaviour(lambda answer, _address: {name: np.zeros_like(tensor) for name, tensor in answer.items()})
SLEEPERS = MANY * LEAST + 1
"""More than as many as once sufficed."""
CLASSES = encoded(
    {
        "format": "gradgraph/1",
        "sizes": {},
        "inputs": [
            tensor("param", "b", [4], grad=True),
            tensor("param", "w", [4, 3], grad=True),
            tensor("data", "x", ["rows", 3]),
            tensor("data", "y", ["rows"], "int64"),
        ],
        "nodes": [
            node("linear.default", [value(2), value(1), value(0)], 4),
            node("abs.default", [value(3)], 5),
            node("cross_entropy_loss.default", [value(4), value(5), None, 1, -100, 0.0], 6),
        ],
        "loss": 6,
        "metrics": {},
        "updates": {},
    }
)
"""A linear model of four classes. Its labels are computed, so the market cannot know which ones the loss takes."""


class Claimant(ScriptedWorker):
    """A worker that claims a fault in each of its tasks."""

    def turn(self, wait_s: float = 1.0) -> None:
        self.poll(wait_s=wait_s)
        for held in self.open():
            claim(self, held)


def claim(scripted: ScriptedWorker, held: Held) -> None:
    """Returns its lease, like a worker whose step failed."""
    lease = held.lease
    given = LeaseReturn(replica=lease.replica, fence=lease.fence, failed=True, reason="failed", fault=BAD_ROW)
    scripted.poll(given_up=[given])


def strikes(scene: Scene, scripted: ScriptedWorker) -> float:
    told = scene.requester.get(f"/v1/workers/{scripted.address}").json()
    return round(sum(record["weight"] for record in told["strikes"]))


@attack(
    "one bad row shuts the market",
    "paused: 3 separate workers, partition train, row 17; strikes 0 0 0; next job finished; paid 10 10 10",
)
def a_bad_row_in_a_linked_partition(scene: Scene) -> str:
    """Workers see external rows first: they report the fault, the job pauses, and they go on in the next one."""
    job = scene.post()
    team = job.team(HONEST, HONEST, HONEST)
    job.each(team, lambda scripted: scripted.lease())
    for scripted in team:
        claim(scripted, scripted.newest())
    wait_until(lambda: job.fetch_view()["state"] == "paused", "the job pauses")
    found = job.fetch_view()["fault"]
    struck = " ".join(str(strikes(scene, scripted)) for scripted in team)
    after = scene.post()
    for scripted in team:
        scripted.follow(after)
    after.play(*team)
    paid = " ".join(str(after.paid(scripted)) for scripted in team)
    where = f"{found['parties']} separate workers, partition {found['fault']['partition']}, row {found['fault']['row']}"
    return f"paused: {where}; strikes {struck}; next job {after.fetch_view()['state']}; paid {paid}"


@attack(
    "one bad row shuts the market",
    "paused: two separate workers, cross_entropy_loss; strikes 0 0; the other job finished; paid 10 10",
)
def a_label_that_the_model_does_not_take(scene: Scene) -> str:
    """Real workers of both jobs: they first see the labels that the loss refuses."""
    bad, good = scene.post(replication=PAIR, **_classes(scene, label=7)), scene.post(replication=PAIR)
    with hired((bad, good), {}, {}) as workers:
        wait_until(
            lambda: bad.fetch_view()["state"] == "paused" and good.fetch_view()["state"] == "finished", "both are over"
        )
    reason = bad.fetch_view()["reason"]
    parties = "two separate workers" if reason.startswith("2 separate workers") else reason
    struck, paid = " ".join(str(each.strikes) for each in workers), " ".join(str(each.paid) for each in workers)
    operator = "cross_entropy_loss" if "cross_entropy_loss" in reason else reason
    return f"paused: {parties}, {operator}; strikes {struck}; the other job {good.fetch_view()['state']}; paid {paid}"


def _classes(scene: Scene, label: int) -> dict[str, Any]:
    """The spec of a job with a model of four classes, and rows that all have this label except the first.

    The service computes its check before posting on the first rows.
    """
    weights = tensors.pack_tensors({"b": np.zeros(4, np.float32), "w": np.ones((4, 3), np.float32)})
    data = tensors.pack_tensors({"x": scene.rows["x"], "y": np.where(np.arange(ROWS) < ROWS // 2, 0, label)})
    link = f"/v1/blobs/{scene.put(data)}"
    inputs = {"x": Column(dtype="float32", shape=(3,)), "y": Column(dtype="int64", shape=())}
    partition = Partition(name="train", link=link, digest=blob_digest(data), bytes=len(data), rows=ROWS)
    manifest = canonical(Manifest(inputs=inputs, partitions=(partition,)).model_dump(mode="json"))
    model = {"document": scene.put(CLASSES), "parameters": scene.put(weights)}
    return {"model": model, "data": {"manifest": scene.put(manifest)}}


@attack("claims of failure to pause a job", "paused: never; sybils paid 0; honest payable 40; finished; books balanced")
def sybils_claim_that_a_task_cannot_be_computed(scene: Scene) -> str:
    """Six of them ask all the time beside three that have earned, and claim as soon as they hold a lease."""
    earlier = scene.post()
    honest = earlier.team(HONEST, HONEST, HONEST)
    earlier.play(*honest)
    job = scene.post(rounds=4)
    for scripted in honest:
        scripted.follow(job)
    return claimed(job, honest, 6)


@attack("claims of failure to pause a job", "paused: never; sybils paid 0; honest payable 10; finished; books balanced")
def fresh_wallets_claim_where_all_are_fresh(scene: Scene) -> str:
    """Nobody has earned yet: as long as others are there that could still be asked, claims pause nothing."""
    job = scene.post()
    return claimed(job, job.team(HONEST, HONEST, HONEST), 4)


class Sleeper(Claimant):
    """Answers, wrongly and like all of its kind, until it is awake."""

    awake = False

    def turn(self, wait_s: float = 1.0) -> None:
        if self.awake:
            super().turn(wait_s)
        else:
            ScriptedWorker.turn(self, wait_s)


@attack(
    "claims of failure to pause a job",
    f"{SLEEPERS} wallets proven; paused: never; sybils paid 0; honest payable 40; finished; books balanced",
)
def proven_wallets_claim_where_one_replica_decides(scene: Scene) -> str:
    """Each was paid for one wrong gradient, equal to the others'. One honest worker is enough for the job to go on."""
    earlier = scene.post(rounds=80, tasks_per_round=4, replication=SINGLE, budget=str(3300 * UNIT))
    sleepers = [Sleeper(earlier, SAME) for _ in range(SLEEPERS)]
    earlier.play(*sleepers, done=lambda: all(map(earlier.paid, sleepers)))
    before = [earlier.paid(sleeper) for sleeper in sleepers]
    scene.requester.post(f"/v1/jobs/{earlier.id}/cancel").raise_for_status()
    job = scene.post(tasks_per_round=4, replication=SINGLE)
    honest = job.scripted()
    for sleeper in sleepers:
        sleeper.awake = True
        sleeper.follow(job)
    job.play(*sleepers, honest)
    events = scene.requester.get(f"/v1/jobs/{job.id}/events?follow=false").text
    paused = "once" if "event: paused" in events else "never"
    told = f"sybils paid {sum(map(job.paid, sleepers)) - sum(before)}; {job.seen(honest=honest)}"
    return f"{sum(paid > 0 for paid in before)} wallets proven; paused: {paused}; {told}"


def claimed(job: Posted, honest: list[ScriptedWorker], count: int) -> str:
    sybils = [Claimant(job) for _ in range(count)]
    job.play(*sybils, *honest)
    events = job.scene.requester.get(f"/v1/jobs/{job.id}/events?follow=false").text
    paused = "once" if "event: paused" in events else "never"
    return f"paused: {paused}; sybils paid {sum(map(job.paid, sybils))}; {job.seen(honest=honest)}"


@attack(
    "an operator that is always too late",
    "leases 1 1; strikes 2 2; the operator paid 0; honest payable; finished; books balanced",
)
def wallets_of_one_operator_that_let_their_leases_lapse(scene: Scene) -> str:
    """Each has its payout key's consent: an unanswered place of one bars the other from the next place too."""
    late = {"lease_s": 5, "wave_s": 5, "upload_s": 60}
    job = scene.post(tasks_per_round=2, deadlines=late, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    first = job.scripted(IDLE)
    second = job.scripted(IDLE)
    second.sign_in(payout=first.address, by=first.key)
    job.gather(first, second)
    honest = job.team(HONEST)
    job.play(first, second, *honest)
    leases, struck = f"{len(first.held)} {len(second.held)}", f"{strikes(scene, first)} {strikes(scene, second)}"
    states = "+".join(dict.fromkeys(scripted.states for scripted in honest))
    told = f"honest {states}; {job.fetch_view()['state']}; {job.balanced()}"
    return f"leases {leases}; strikes {struck}; the operator paid {job.paid(first)}; {told}"


@attack("data unlike its manifest", "failed: data.manifest.partitions.train: it cannot be read; deposited 0")
def a_partition_of_another_type(scene: Scene) -> str:
    return _posted_with(scene, y=np.zeros((ROWS, 1), np.int64))


@attack("data unlike its manifest", "failed: data.manifest.partitions.train: it cannot be read; deposited 0")
def a_partition_with_a_row_less(scene: Scene) -> str:
    rows = {name: array[1:] for name, array in scene.rows.items()}
    return _posted_with(scene, **rows)


def _posted_with(scene: Scene, **arrays: Any) -> str:
    """A job over a partition with these arrays in place of the declared ones."""
    data = tensors.pack_tensors(scene.rows | arrays)
    link = f"/v1/blobs/{scene.put(data)}"
    partition = Partition(name="train", link=link, digest=blob_digest(data), bytes=len(data), rows=ROWS)
    inputs = {"x": Column(dtype="float32", shape=(3,)), "y": Column(dtype="float32", shape=(1,))}
    manifest = canonical(Manifest(inputs=inputs, partitions=(partition,)).model_dump(mode="json"))
    job = scene.submit(data={"manifest": scene.put(manifest)}).json()["id"]
    wait_until(lambda: Posted(scene, job).fetch_view()["state"] != "draft", "the job is published or refused")
    told = Posted(scene, job).fetch_view()
    field = told["reason"].partition("data.manifest")[2].split(":")
    return f"{told['state']}: data.manifest{':'.join(field[:2])}; deposited {told['costs']['deposited']}"
