"""Payloads that do not come, come twice, too late, too large, or are something else."""

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.attacks.commitments import refusal, reveal
from tests.attacks.registry import attack
from tests.attacks.scene import Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, Behaviour
from tests.patience import wait_until


def uploader(job: Posted, workers: list[ScriptedWorker]) -> ScriptedWorker:
    """All have agreed; the one that is asked for the payload."""
    job.gather(*workers)
    job.commit(*workers)
    job.opened(*workers)
    reveal(*workers)

    def list_asked() -> list[ScriptedWorker]:
        for worker in workers:
            worker.poll()
        return [worker for worker in workers if worker.newest().wanted]

    wait_until(list_asked, "somebody is asked for the payload")
    return list_asked()[0]


@attack("withheld payload", "withholder withheld 0; others payable 10; finished; books balanced")
def the_one_that_is_asked_keeps_it(scene: Scene) -> str:
    job = scene.post(deadlines={"lease_s": 60, "wave_s": 60, "upload_s": 5})
    workers = job.team(HONEST, HONEST, HONEST)
    asked = uploader(job, workers)
    asked.behaviour = Behaviour(uploads=False)
    job.play(*workers)
    return job.seen(withholder=asked, others=[worker for worker in workers if worker is not asked])


@attack("payload unlike its commitment", "other bytes 409; earned before 0; all payable 10; finished; books balanced")
def zeros_instead_of_what_was_committed(scene: Scene) -> str:
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    asked = uploader(job, workers)
    other = asked.upload(asked.newest(), bytes(len(asked.newest().payload)))
    earned = job.fetch_view()["costs"]["earned"]
    job.play(*workers)
    return f"other bytes {other.status_code}; earned before {earned}; {job.seen(all=workers)}"


@attack("duplicate submit", "first 200, again 200, other bytes 409; all payable 10; finished; books balanced")
def the_same_payload_three_times(scene: Scene) -> str:
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    asked = uploader(job, workers)
    held = asked.newest()
    first, again = asked.upload(held), asked.upload(held)
    other = asked.upload(held, bytes(len(held.payload)))
    job.play(*workers)
    told = f"first {first.status_code}, again {again.status_code}, other bytes {other.status_code}"
    return f"{told}; {job.seen(all=workers)}"


@attack(
    "same task paid twice", "gradients in the payments 3; vouchers 10 10 10; all payable 10; finished; books balanced"
)
def every_door_is_tried_again(scene: Scene) -> str:
    """All three repeat the accepted payload, its reveal and its commitment."""
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    asked = uploader(job, workers)
    asked.upload(asked.newest())
    for worker in workers:
        held = worker.newest()
        worker.poll(commitments=[worker.commitment(held)], reveals=[worker.revelation(held)])
        worker.upload(held)
        worker.poll()
    job.play(*workers)
    cumulative = " ".join(str(worker.voucher[0].cumulative) for worker in workers if worker.voucher)
    lines = len(job.fetch_view("/payments")["items"])
    return f"gradients in the payments {lines}; vouchers {cumulative}; {job.seen(all=workers)}"


@attack(
    "expired-lease submit",
    "refused too_late; fence refused too_late; late expired 0; honest payable 10; finished; books balanced",
)
def after_the_lease_and_behind_its_fence(scene: Scene) -> str:
    job = scene.post(deadlines={"lease_s": 5, "wave_s": 5, "upload_s": 60})
    late, *others = job.team(HONEST, HONEST, HONEST)
    job.gather(late, *others)
    wait_until(lambda: late.poll() and late.newest().told, "the lease is over")
    late.poll(commitments=[late.commitment(late.newest())])
    first = refusal(late)
    late.poll(commitments=[late.commitment(late.newest(), fence=late.newest().lease.fence + 1)])
    honest = job.team(HONEST, HONEST, HONEST)
    job.play(*honest)
    return f"refused {first}; fence refused {refusal(late)}; {job.seen(late=late, honest=honest)}"


@attack(
    "oversize or zip-bomb upload",
    "declared too large 413, streamed too large 413; all payable 10; finished; books balanced",
)
def more_bytes_than_a_payload_has(scene: Scene) -> str:
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    asked = uploader(job, workers)
    held = asked.newest()
    declared = asked.upload(held, bytes(1 << 20))
    streamed = asked.bring(held, iter([bytes(1 << 16)] * 16))
    job.play(*workers)
    told = f"declared too large {declared.status_code}, streamed too large {streamed.status_code}"
    return f"{told}; {job.seen(all=workers)}"


class Bomb:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.mark,)  # type: ignore[return-value]


@attack("pickle in any file", "manifest 422; document failed, parameters failed; nothing ran; deposits 0")
def a_pickle_for_each_file_of_a_job(scene: Scene) -> str:
    with TemporaryDirectory() as folder:
        mark = Path(folder) / "mark"
        bomb = scene.put(pickle.dumps(Bomb(mark)))
        honest = scene.spec()["model"]
        manifest = scene.submit(data={"manifest": bomb}).status_code
        jobs = [refused(scene, model=honest | {part: bomb}) for part in ("document", "parameters")]
        ran = "something" if mark.exists() else "nothing"
    document, parameters = (job.fetch_view()["state"] for job in jobs)
    deposits = sum(int(job.fetch_view()["costs"]["deposited"]) for job in jobs)
    return f"manifest {manifest}; document {document}, parameters {parameters}; {ran} ran; deposits {deposits}"


def refused(scene: Scene, **changes: object) -> Posted:
    """A job that is not published."""
    job = Posted(scene, scene.submit(**changes).json()["id"])
    wait_until(lambda: job.fetch_view()["state"] not in ("draft", "awaiting_funds"), "the job is refused or runs")
    return job
