"""Commitments copied, late, ground or changed; and a requester that grinds its secret."""

import secrets as chance
from dataclasses import replace

from gradmarket.market.terms import Hash
from tests.attacks.registry import attack
from tests.attacks.scene import Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, NOISE
from tests.patience import wait_until


def evidence(job: Posted, scripted: ScriptedWorker) -> dict:  # type: ignore[type-arg]
    """The public view of the task that it holds."""
    return job.fetch_view(f"/tasks/{scripted.newest().lease.task}")


def reveal(*puppets: ScriptedWorker) -> None:
    for scripted in puppets:
        scripted.poll(reveals=scripted.reveals())


def refusal(scripted: ScriptedWorker) -> str:
    return scripted.refusals[-1].code if scripted.refusals else "taken"


@attack("copy a commitment", "copier rejected 0; honest payable 10; finished; books balanced")
def another_s_seal_in_one_s_own_name(scene: Scene) -> str:
    """Even with salt and root at hand the copy does not open: a seal is bound to its worker."""
    job = scene.post()
    copier, victim, third = job.team(HONEST, HONEST, HONEST)
    job.gather(copier, victim, third)
    seal = victim.commitment(victim.newest()).sealed
    copier.poll(commitments=[copier.commitment(copier.newest(), sealed=seal)])
    job.commit(victim, third)
    job.opened(copier)
    known = victim.newest()
    copier.poll(reveals=[copier.revelation(copier.newest(), salt=known.salt, root=known.root)])
    job.play(victim, third)
    copier.poll()
    return job.seen(copier=copier, honest=[victim, third])


@attack("copy after reveal", "refused too_late; copier too_late 0; honest payable 10; finished; books balanced")
def who_learns_the_root_commits_to_it(scene: Scene) -> str:
    job = scene.post(deadlines={"lease_s": 60, "wave_s": 5, "upload_s": 60})
    copier, *honest = job.team(HONEST, HONEST, HONEST)
    job.gather(copier, *honest)
    job.commit(*honest)
    job.opened(*honest)
    reveal(*honest)
    copier.poll(commitments=[copier.commitment(copier.newest())])
    job.play(*honest)
    copier.poll()
    return f"refused {refusal(copier)}; {job.seen(copier=copier, honest=honest)}"


@attack(
    "commit after the seed through a split",
    "roots shown 0; refused too_late; "
    "laggard too_late 0; liars rejected 0; honest payable 10; finished; books balanced",
)
def a_laggard_waits_for_the_split(scene: Scene) -> str:
    """Two answers that differ open a further wave, with a secret of its own; the first takes no more."""
    job = scene.post(deadlines={"lease_s": 60, "wave_s": 5, "upload_s": 60})
    laggard, *liars = job.team(HONEST, NOISE, NOISE)
    job.gather(laggard, *liars)
    honest = job.present(HONEST, HONEST, HONEST)
    job.commit(*liars)
    job.opened(*liars)
    reveal(*liars)
    wait_until(lambda: evidence(job, laggard)["wave"] == 1, "the split")
    shown = sum(replica["root"] is not None for replica in evidence(job, laggard)["replicas"])
    laggard.poll(commitments=[laggard.commitment(laggard.newest())])
    job.play(*liars, *honest)
    laggard.poll()
    told = job.seen(laggard=laggard, liars=liars, honest=honest)
    return f"roots shown {shown}; refused {refusal(laggard)}; {told}"


@attack("salt grinding", "secret unknown; refused conflict; worker payable 10; finished; books balanced")
def a_second_salt_for_a_better_seed(scene: Scene) -> str:
    """The seed depends on the wave's secret, which nobody knows yet; and a commitment is not exchanged."""
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    grinder = workers[0]
    job.gather(*workers)
    job.commit(grinder)
    secrets = [wave["secret"] for wave in evidence(job, grinder)["waves"]]
    again = replace(grinder.newest(), salt=Hash(chance.token_bytes(32)))
    grinder.poll(commitments=[grinder.commitment(again)])
    job.play(*workers)
    known = "known" if any(secrets) else "unknown"
    return f"secret {known}; refused {refusal(grinder)}; {job.seen(worker=workers)}"
