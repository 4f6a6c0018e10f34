"""Inner steps left out where audits repeat two windows of a task, and states withheld from such an audit."""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradmarket.compute.task_run import TaskRun
from gradmarket.market.features.windows import StatesAsked
from gradmarket.market.gradient import payload
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.sampling import task_rows
from gradmarket.market.step import Step, WindowStep
from gradmarket.market.terms import Digest, Hash, blob_digest
from gradmarket.market.wire.audit_messages import AuditWork
from gradmarket.market.wire.poll import OfferFields, digest_of
from gradmarket.runner import window_state
from gradmarket.runner.steps import compute_step
from graphdoc import tensors
from tests.attacks.audits import ALWAYS, Auditor
from tests.attacks.registry import attack
from tests.attacks.scene import Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.scripted import Held
from tests.patience import wait_until

STEP = {"kind": "local", "rows": 4, "steps": 6, "window": 2, "optimizer": {"name": "adamw", "lr": 0.01}}
QUICK = {"lease_s": 20, "wave_s": 20, "upload_s": 5}
Skips = Callable[[WindowStep], bool]


def nothing(_step: WindowStep) -> bool:
    return False


def all_but_the_last(step: WindowStep) -> bool:
    return step.ends < step.steps


class WindowWorker(ScriptedWorker):
    """Leaves out the windows that `skips` names: it commits to the state before one as if that were the one after."""

    def __init__(self, job: Posted, skips: Skips = nothing, serves: bool = True) -> None:
        super().__init__(job)
        self.skips, self.serves, self.brought = skips, serves, 0

    def computed(self, held: Held) -> Held:
        if held.payload:
            return held
        made = answered(self.job, held.lease.offer, lambda task: task.whole(lambda *_: None), self.skips)
        return self._put(held, payload=made, salt=Hash(held.lease.replica.encode().ljust(32)[:32]))

    def live(self, over: threading.Event) -> None:
        while not over.is_set():
            self.turn()
            if self.serves:
                self.serve()
        self.turn(wait_s=0.0)

    def serve(self) -> None:
        for wanted in StatesAsked.model_validate_json(self.http.get("/v1/work/states").content).states:
            task = task_of(self.job, self.held[wanted.replica].lease.offer, self.skips)
            path = f"/v1/work/states/{wanted.digest}"
            self.http.put(path, content=task.state_at(wanted.digest)).raise_for_status()
            self.brought += 1


class WindowAuditor(Auditor):
    """Repeats two windows in its first run, where it is asked to."""

    def report_run(self, work: AuditWork, run: int, root: Digest | None = None) -> str:
        return super().report_run(work, run, root or blob_digest(self._found(work, run)))

    def _found(self, work: AuditWork, run: int) -> bytes:
        asked = work.window
        if asked is None or run:
            return answered(self.job, work.offer, lambda task: task.whole(lambda *_: None))
        return answered(self.job, work.offer, lambda task: task.replay(asked.window, asked.leaves, self._fetch))

    def _fetch(self, digest: Digest) -> bytes:
        answer = self.http.get(f"/v1/blobs/{digest}")
        answer.raise_for_status()
        return answer.content


def answered(
    job: Posted, offer: OfferFields, run: Callable[[TaskRun], tuple[Arrays, object]], skips: Skips = nothing
) -> bytes:
    task = task_of(job, offer, skips)
    answer, leaves = run(task)
    packed = load_codec(job.spec.uplink.codec)
    return bytes(payload.encode_payload(task.layout, dict(answer), packed, offer.seed, leaves))  # type: ignore[arg-type]


def task_of(job: Posted, offer: OfferFields, skips: Skips = nothing) -> TaskRun:
    scene, spec = job.scene, job.spec
    chosen = task_rows(parse_manifest(scene.manifest), spec, offer.round, offer.task)
    batch = {name: np.ascontiguousarray(rows[chosen]) for name, rows in scene.rows.items()}
    state = tensors.unpack_tensors(scene.requester.get(f"/v1/blobs/{digest_of(offer.parameters)}").content)

    def moved(state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        honest = compute_step(scene.program, state, batch, seed, step)
        if not isinstance(step, WindowStep) or not skips(step):
            return honest
        return {name: array if name == window_state.LOSSES else state[name] for name, array in honest.items()}

    layout = replace(job.layout, leaves=spec.step.leaves)
    return TaskRun(moved, layout, spec.step_in(offer.round), state, batch, offer.seed)


def posted(scene: Scene) -> Posted:
    return scene.post(step=STEP, audit=ALWAYS, deadlines=QUICK)


def played(job: Posted, *workers: WindowWorker) -> str:
    """They live, and the first accepted task is audited: the finding, and its basis."""
    auditor = WindowAuditor(job)
    job.play(*workers, done=auditor.claim)
    work = auditor.claim()
    assert work is not None
    run = 0
    while auditor.report_run(work, run) == "again":
        run += 1
    wait_until(lambda: job.fetch_view("/audits")["items"], "the audit")
    (found,) = job.fetch_view("/audits")["items"]
    return f"{found['state']} {'whole' if found['window'] is None else 'by window'}"


@attack(
    "inner steps left out",
    "honest work passed by window, with 1 or 2 states; the liars' failed whole; honest payable 10; liars payable 10",
    alone=True,
)
def only_the_last_window_is_computed(scene: Scene) -> str:
    """Two that act as one hold the quorum; one of the windows that they left out is drawn."""
    clean = posted(scene)
    workers = [WindowWorker(clean) for _ in range(3)]
    passed = played(clean, *workers)
    states = "1 or 2" if 1 <= sum(worker.brought for worker in workers) <= 2 else "other"
    job = posted(scene)
    liars, honest = [WindowWorker(job, all_but_the_last) for _ in range(2)], WindowWorker(job)
    failed = played(job, honest, *liars)
    for one in (honest, *liars):
        one.poll()
    ends = dict.fromkeys(f"{who} {one.states} {job.paid(one)}" for who, one in [("honest", honest), *named(liars)])
    return f"honest work {passed}, with {states} states; the liars' {failed}; {'; '.join(ends)}"


def named(liars: list[WindowWorker]) -> list[tuple[str, WindowWorker]]:
    return [("liars", liar) for liar in liars]


@attack("states withheld from an audit", "failed whole; nothing brought", alone=True)
def silent_liars(scene: Scene) -> str:
    """A worker that brings no state is audited by the whole task."""
    job = posted(scene)
    liars, honest = [WindowWorker(job, all_but_the_last, serves=False) for _ in range(2)], WindowWorker(job)
    found, brought = played(job, honest, *liars), sum(liar.brought for liar in liars)
    return f"{found}; {brought or 'nothing'} brought"
