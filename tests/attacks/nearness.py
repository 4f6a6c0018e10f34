"""Answers that are only near: several determinism classes vote together by sketches."""

from collections.abc import Mapping

import numpy as np

from gradmarket.market.features.tolerance import RUNS
from gradmarket.market.terms import Address
from tests.attacks.audits import ALWAYS, Auditor, finish
from tests.attacks.registry import attack
from tests.attacks.scene import UNIT, Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.attacks.seats import SHORT
from tests.kit.behaviour import HONEST, Arrays, Behaviour
from tests.kit.scripted import Held

OTHER = "cpu, other kernels"
ROUNDING = np.float32(1 + 2**-21)
TOLERANCE = {"name": "tolerance"}


def rounded(answer: Arrays, _address: Address) -> Arrays:
    """Returns the honest answer as other kernels compute it."""
    return {name: (tensor * ROUNDING).astype(np.float32) for name, tensor in answer.items()}


def voting(scene: Scene, replicas: int, **changes: object) -> Posted:
    replication = {"name": "fixed", "replicas": replicas, "max_replicas": replicas}
    return scene.post(**{"verifier": TOLERANCE, "replication": replication, "audit": {"probability": 1e-9}} | changes)


KIN = Behaviour(rounded)


def other(job: Posted, behaviour: Behaviour = KIN) -> ScriptedWorker:
    """A worker whose machine has the other class."""
    made = job.scripted(behaviour)
    made.determinism_class = OTHER
    return made


def pair(job: Posted) -> dict[str, float]:
    """The thresholds of the two classes, tensor by tensor; none before they are calibrated."""
    found = [each for each in job.fetch_view("/calibration")["pairs"] if each["state"] == "calibrated"]
    return {tensor["name"]: tensor["threshold"] for each in found for tensor in each["tensors"]}


def calibrated(scene: Scene) -> Mapping[str, float]:
    """A first job whose audits measure the distance of the two classes; later jobs of this model share it."""
    job = voting(scene, 2, tasks_per_round=RUNS, audit=ALWAYS, budget=str(4_000 * UNIT))
    if found := pair(job):
        scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
        return found
    own, beside, stranger = Auditor(job), Auditor(job, OTHER, rounded), other(job)

    def learnt() -> object:
        own.run()
        beside.calibrate()
        return pair(job)

    job.play(*job.team(HONEST, HONEST), stranger, done=learnt)
    finish(job, own, *job.team(HONEST, HONEST))
    return pair(job)


def apart(tau: Mapping[str, float], times: float) -> Behaviour:
    """So many thresholds from the honest answer, in every tensor."""

    def spoil(answer: Arrays, _address: Address) -> Arrays:
        return {
            name: (tensor * np.float32(1 + times * tau[name])).astype(np.float32) for name, tensor in answer.items()
        }

    return Behaviour(spoil)


@attack(
    "tolerance chain",
    "near payable 10; between payable 10; far rejected 0; honest payable 10; finished; books balanced",
    alone=True,
)
def each_near_the_next_and_the_last_far_away(scene: Scene) -> str:
    """Of a chain in steps under the threshold only those near one ballot agree: its end is not carried along."""
    tau = calibrated(scene)
    job = voting(scene, 5)
    honest = job.team(HONEST, HONEST)
    near, between, far = other(job, apart(tau, 0.9)), job.scripted(apart(tau, 1.8)), other(job, apart(tau, 2.7))
    job.play(*honest, near, between, far)
    return job.seen(near=near, between=between, far=far, honest=honest)


@attack(
    "sketch without data",
    "numbers rejected 0; silent withheld 0; honest payable 10; finished; books balanced; same model",
    alone=True,
)
def numbers_that_are_of_no_answer(scene: Scene) -> str:
    calibrated(scene)
    job = voting(scene, 5, deadlines=SHORT)
    honest = job.team(HONEST, HONEST, HONEST)
    numbers, silent = other(job, Behaviour(sketches=_nothing)), Silent(job)
    job.play(*honest, numbers, silent)
    return f"{job.seen(numbers=numbers, silent=silent, honest=honest)}; {_model(job)}"


class Changeling(ScriptedWorker):
    """It commits to nothing but zeros, and sketches the honest answer."""

    def computed(self, held: Held) -> Held:
        if held.payload:
            return held
        done = super().computed(held)
        self.behaviour = Behaviour(sketches=lambda _payload: done.payload)
        return self._put(done, payload=bytes(len(done.payload)))


class Silent(ScriptedWorker):
    """It reveals a root, and no sketch of it."""

    def sketch(self, *_: object, **__: object) -> None:
        return None


def _nothing(payload: bytes) -> bytes:
    return bytes(len(payload))


def _model(job: Posted) -> str:
    return "same model" if job.fetch_view()["parameters"] == job.scene.clean(1) else "another model"


@attack("sketch without data", "honest payable; of the liar's payloads used 0; finished; same model", alone=True)
def a_sketch_of_another_answer_than_the_committed_one(scene: Scene) -> str:
    """Its sketch is the honest one, and its payload is not: where it is asked for, it is held against the sketch."""
    calibrated(scene)
    job = voting(scene, 3, rounds=6)
    honest = job.team(HONEST, HONEST)
    liar = Changeling(job)
    job.play(*honest, liar)
    used = sum(job.fetch_view(f"/tasks/{held.lease.task}")["root"] == held.root for held in liar.held.values())
    states = "+".join(dict.fromkeys(worker.states for worker in honest))
    same = "same" if job.fetch_view()["parameters"] == scene.clean(6) else "another"
    return f"honest {states}; of the liar's payloads used {used}; {job.fetch_view()['state']}; {same} model"
