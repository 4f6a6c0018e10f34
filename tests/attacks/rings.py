"""Identities that cost one sign-in, in a job of `proven`: what they are paid, and what is wrong at the end."""

from tests.attacks.audits import Auditor, finish
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.kit.behaviour import HONEST, TRIPLED

PROVEN = {"name": "proven"}
GREEDY = 20


@attack(
    "free identities",
    "liars paid 0; honest paid: yes; finished; books balanced",
    alone=True,
)
def a_flood_that_answers_at_once_and_lies_always(scene: Scene) -> str:
    """More than the honest ones, each with room for twenty leases. Once the auditor found an honest one right, its own
    result replaces what they lie."""
    job = scene.post(tasks_per_round=2, replication=PROVEN)
    auditor, liars, honest = Auditor(job), job.team(*[TRIPLED] * 3), job.team(HONEST, HONEST)
    for liar in liars:
        liar.capacity = GREEDY
    finish(job, auditor, *liars, *honest)
    paid = [sum(job.paid(worker) for worker in team) for team in (liars, honest)]
    return f"liars paid {paid[0]}; honest paid: {'yes' if paid[1] else 'no'}; {job.told()['state']}; {job.balanced()}"


@attack(
    "free identities",
    "leases of a made-up class 0, paid 0; honest payable 20; finished; books balanced",
    alone=True,
)
def a_class_of_which_no_auditor_is(scene: Scene) -> str:
    """Three that ask before any honest worker does: the job settles on no class that its auditor cannot check."""
    job = scene.post(tasks_per_round=2, replication=PROVEN)
    auditor, made_up = Auditor(job), job.team(*[TRIPLED] * 3)
    for stranger in made_up:
        stranger.determinism_class = "made up"
    job.each(made_up, lambda stranger: stranger.poll(wait_s=0.1))
    honest = job.scripted()
    finish(job, auditor, *made_up, honest)
    leases, paid = sum(len(one.held) for one in made_up), sum(job.paid(one) for one in made_up)
    return f"leases of a made-up class {leases}, paid {paid}; {job.seen(honest=honest)}"
