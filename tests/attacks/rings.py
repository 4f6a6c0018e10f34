"""Identities that cost one sign-in, in a job of `proven`: their pay, and the wrong tasks at the end."""

import sqlite3
import time

from gradmarket.market.features.audits import class_checks
from tests.attacks.audits import Auditor, finish
from tests.attacks.registry import Seen, attack
from tests.attacks.scene import PRICE, UNIT, Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.attacks.seats import replicas
from tests.databases import new_sqlite
from tests.features.proven.test_joining_at_size import (
    ROUNDS,
    count_prices,
    join_deposit,
    open_flooded,
    play_until_paid,
    sum_held,
)
from tests.kit.behaviour import HONEST, TRIPLED
from tests.kit.unchained import unchained
from tests.patience import PATIENCE_S, wait_until
from tests.requester.conftest import open_markets

PROVEN = {"name": "proven"}
NETWORKS = 200
GREEDY = 20
CERTAIN = 1.0 - 1e-9


@attack(
    "free identities",
    "liars paid 0; honest paid: yes; finished; books balanced",
    alone=True,
)
def a_flood_that_answers_at_once_and_lies_always(scene: Scene) -> str:
    """More than the honest ones, each with room for twenty leases. Once the auditor found an honest one right, its own
    result replaces their lie."""
    job = scene.post(tasks_per_round=2, replication=PROVEN)
    auditor, liars, honest = Auditor(job), job.team(*[TRIPLED] * 3), job.team(HONEST, HONEST)
    for liar in liars:
        liar.capacity = GREEDY
    finish(job, auditor, *liars, *honest)
    paid = [sum(job.paid(worker) for worker in team) for team in (liars, honest)]
    state, words = job.fetch_view()["state"], "yes" if paid[1] else "no"
    return f"liars paid {paid[0]}; honest paid: {words}; {state}; {job.balanced()}"


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


@attack(
    "free identities",
    "leases of a made-up class 0; cancelled; free units that stay locked 0; books balanced",
    alone=True,
)
def a_made_up_class_whose_job_is_cancelled(scene: Scene) -> str:
    """Its audits would need a class without machines: no free worker waits for them."""
    job = scene.post(tasks_per_round=2, replication=PROVEN)
    auditor, made_up = Auditor(job), job.team(*[TRIPLED] * 3)
    for stranger in made_up:
        stranger.determinism_class = "made up"
    job.each(made_up, lambda stranger: stranger.poll(wait_s=0.1))
    assert auditor.claim() is None
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    wait_until(lambda: scene.ledger.free(job.chain_job) == 0, "what is free goes back")
    leases, locked = sum(len(one.held) for one in made_up), scene.ledger.free(job.chain_job) // UNIT
    return (
        f"leases of a made-up class {leases}; {job.fetch_view()['state']}; free units that stay locked {locked}; "
        f"{job.balanced()}"
    )


@attack(
    "free identities",
    "a newcomer with a deposit is paid within three rounds: yes; the flood holds at most half of the money: yes",
    alone=True,
)
def two_hundred_networks_that_take_places_and_never_answer(_scene: Scene) -> Seen:
    """On the service's stages in one thread, whose clock passes at once: a round waits for those that never answer.

    They asked before it, each from a network of its own, and eight tasks make a round.
    """
    with open_markets(unchained(), new_sqlite) as new_market:
        market, auditor, flood = open_flooded(new_market, NETWORKS)
        rounds = play_until_paid(market, auditor, ROUNDS, join_deposit(market))
        held = sum_held(market, flood)
    within, half = ("yes" if met else "no" for met in (rounds <= 3, held <= count_prices() // 2))
    words = f"a newcomer with a deposit is paid within three rounds: {within}"
    figures = {"rounds until it is paid": float(rounds), "prices that the flood holds": float(held)}
    return Seen(f"{words}; the flood holds at most half of the money: {half}", figures)


@attack(
    "two of three votes where no auditor is",
    "a fourth seat: yes; liars paid 0; parameters are honest ones': yes; finished; books balanced",
    alone=True,
)
def two_proven_ones_lie_where_nobody_audits(scene: Scene) -> str:
    """Two of three equal lies would win a plain vote; a fourth seat, which no offer shows, asks for unanimity.

    They come once the four honest ones have reservations, which makes a fourth seat possible.
    """
    rounds, budget = 4, str(100 * PRICE * UNIT)
    right = scene.clean(rounds)
    job = scene.post(replication=PROVEN | {"audit": CERTAIN}, rounds=rounds, budget=budget)
    team = job.team(TRIPLED, TRIPLED, *[HONEST] * 4)
    for one in team:
        one.determinism_class = "audited by nobody"
    age_job_and_prove(scene, job, team)
    job.play(*team[2:], done=lambda: job.fetch_view()["round"] is not None)
    job.play(*team)
    seats = max(map(len, replicas(job)))
    paid = sum(job.paid(liar) for liar in team[:2])
    same = "yes" if job.fetch_view()["parameters"] == right else "no"
    told = f"a fourth seat: {'yes' if seats > 3 else 'no'}; liars paid {paid}; parameters are honest ones': {same}"
    return f"{told}; {job.fetch_view()['state']}; {job.balanced()}"


def age_job_and_prove(scene: Scene, job: Posted, team: list[ScriptedWorker]) -> None:
    """As after passed audits of this requester, with tasks that waited for workers of audited classes."""
    with sqlite3.connect(scene.market.data / "gradmarket.sqlite", timeout=PATIENCE_S) as database:
        database.executemany(
            "INSERT INTO reputations (operator, determinism_class, evidence, paid, computed, at, passed, failed)"
            " VALUES (?, ?, 16.0, 1e30, 1e30, ?, 16, 0)",
            [(one.address, one.determinism_class, time.time()) for one in team],
        )
        waited = (2 * class_checks.UNAUDITED_S, job.id)
        database.execute("UPDATE tasks SET created_at = created_at - ? WHERE job_id = ?", waited)
