"""Data that no worker can compute, and claims that nothing can be computed: whom they stop, and what they cost."""

from typing import Any

import numpy as np
from puppet import HONEST, Puppet
from registry import attack
from scene import Posted, Scene, until
from tiny import ROWS, named

from gradmarket.market.data.manifest import Column, Manifest, Partition
from gradmarket.market.job import canonical
from gradmarket.market.model import tensors
from gradmarket.market.rules.faults import Fault, FaultKind
from gradmarket.market.wire import GivenUp

BAD_ROW = Fault(kind=FaultKind.STEP_FAILED, node="node 1 (nll_loss.default)", partition="train", input="y", row=17)


def claim(puppet: Puppet, fault: Fault = BAD_ROW) -> None:
    """Gives its lease back, as one whose step failed."""
    lease = puppet.newest().lease
    given = GivenUp(replica=lease.replica, fence=lease.fence, failed=True, reason="failed", fault=fault)
    puppet.poll(given_up=[given])


def strikes(scene: Scene, puppet: Puppet) -> float:
    told = scene.requester.get(f"/v1/workers/{puppet.address}").json()
    return round(sum(record["weight"] for record in told["strikes"]))


@attack(
    "one bad row shuts the market",
    "paused: 3 separate workers, partition train, row 17; strikes 0 0 0; next job finished; paid 10 10 10",
    share=True,
)
def a_bad_row_in_a_linked_partition(scene: Scene) -> str:
    """What lies elsewhere is seen by workers first: they say so, the job pauses, and they go on in the next one."""
    job = scene.post()
    team = job.team(HONEST, HONEST, HONEST)
    job.each(team, lambda puppet: puppet.lease())
    for puppet in team:
        claim(puppet)
    until(lambda: job.told()["state"] == "paused", 20, "the job pauses")
    found = job.told()["fault"]
    struck = " ".join(str(strikes(scene, puppet)) for puppet in team)
    after = scene.post()
    for puppet in team:
        puppet.follow(after)
    after.play(*team)
    paid = " ".join(str(after.paid(puppet)) for puppet in team)
    where = f"{found['parties']} separate workers, partition {found['fault']['partition']}, row {found['fault']['row']}"
    return f"paused: {where}; strikes {struck}; next job {after.told()['state']}; paid {paid}"


@attack("claims of failure to pause a job", "honest payable 10; sybil error 0; finished; books balanced")
def sybils_claim_that_a_task_cannot_be_computed(scene: Scene) -> str:
    """Three workers have earned before and are there; newcomers take the places of a task, and claim."""
    earlier = scene.post()
    honest = earlier.team(HONEST, HONEST, HONEST)
    earlier.play(*honest)
    job = scene.post()
    for puppet in honest:
        puppet.follow(job)
        puppet.poll()
    sybils = job.team(HONEST, HONEST, HONEST)
    job.each(sybils, lambda puppet: puppet.lease())
    for sybil in sybils:
        claim(sybil)
    job.play(*honest)
    return job.seen(honest=honest, sybil=sybils)


@attack(
    "data unlike its manifest", "failed: data.manifest.partitions.train: it cannot be read; deposited 0", share=True
)
def a_partition_of_another_type(scene: Scene) -> str:
    return _posted_with(scene, y=np.zeros((ROWS, 1), np.int64))


@attack("data unlike its manifest", "failed: data.manifest.partitions.train: it cannot be read; deposited 0")
def a_partition_with_a_row_less(scene: Scene) -> str:
    rows = {name: array[1:] for name, array in scene.rows.items()}
    return _posted_with(scene, **rows)


def _posted_with(scene: Scene, **arrays: Any) -> str:
    """A job over a partition with these arrays in place of what its manifest declares."""
    data = tensors.pack(scene.rows | arrays)
    link = f"/v1/blobs/{scene.put(data)}"
    partition = Partition(name="train", link=link, digest=named(data), bytes=len(data), rows=ROWS)
    inputs = {"x": Column(dtype="float32", shape=(3,)), "y": Column(dtype="float32", shape=(1,))}
    manifest = canonical(Manifest(inputs=inputs, partitions=(partition,)).model_dump(mode="json"))
    job = scene.submit(data={"manifest": scene.put(manifest)}).json()["id"]
    until(lambda: Posted(scene, job).told()["state"] != "draft", 60, "the job is published or refused")
    told = Posted(scene, job).told()
    field = told["reason"].partition("data.manifest")[2].split(":")
    return f"{told['state']}: data.manifest{':'.join(field[:2])}; deposited {told['costs']['deposited']}"
