"""Drawing of seats: the workers of a task, their company, and the gain of not answering."""

from concurrent.futures import ThreadPoolExecutor

from tests.attacks.commitments import reveal
from tests.attacks.registry import attack
from tests.attacks.scene import Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, NOISE, TRIPLED, Behaviour
from tests.patience import wait_until

SHORT = {"lease_s": 30, "wave_s": 5, "upload_s": 10}
STALLER = Behaviour(reveals=False)


def replicas(job: Posted) -> list[list[dict]]:  # type: ignore[type-arg]
    """Workers of every task, by its evidence once it is over."""
    return [job.fetch_view(f"/tasks/{task['id']}")["replicas"] for task in job.fetch_view("/tasks")["items"]]


@attack(
    "Sybils on one task",
    "seats of one payout on a task 1; Sybils paid 0; honest payable 20; finished; books balanced",
)
def three_names_with_one_payout(scene: Scene) -> str:
    job = scene.post(rounds=2)
    sybils, honest = job.team(TRIPLED, TRIPLED, TRIPLED), job.team(HONEST, HONEST)
    for sybil in sybils:
        sybil.sign_in(payout=sybils[0].address)
    job.play(*sybils, *honest)
    names = {sybil.address for sybil in sybils}
    seats = max(sum(replica["worker"] in names for replica in task) for task in replicas(job))
    paid = sum(job.paid(sybil) for sybil in sybils)
    return f"seats of one payout on a task {seats}; Sybils paid {paid}; {job.seen(honest=honest)}"


@attack("fast polling for quorum", "most tasks are the eager one's: no; all paid 240; finished; books balanced")
def ten_polls_where_others_make_one(scene: Scene) -> str:
    """A draw among four gives it 6 of 24 tasks; first come first served would give it nearly all. Bound: 16."""
    job = scene.post(tasks_per_round=24, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    eager, *calm = job.team(*[HONEST] * 4)
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(_hammer, job, eager)
        job.play(eager, *calm)
        polling.result()
    everybody = [job.paid(worker) for worker in (eager, *calm)]
    words = "yes" if everybody[0] > 160 else "no"
    state = job.fetch_view()["state"]
    return f"most tasks are the eager one's: {words}; all paid {sum(everybody)}; {state}; {job.balanced()}"


def _hammer(job: Posted, eager: ScriptedWorker) -> None:
    """A second connection of the same wallet, that asks all the time."""
    shadow = ScriptedWorker(job, key=eager.key)
    shadow.held = eager.held
    while job.fetch_view()["state"] == "running":
        for _ in range(10):
            shadow.poll(wait_s=0.02)


@attack(
    "declining leases until siblings meet",
    "second lease none; decliner abandoned 0; honest payable 10; finished; books balanced",
)
def a_lease_is_declined_for_a_better_one(scene: Scene) -> str:
    job = scene.post()
    decliner, *honest = job.team(*[HONEST] * 4)
    job.gather(decliner, *honest[:2])
    decliner.poll(given_up=[decliner.give_up(decliner.newest())])
    decliner.poll(wait_s=2.0)
    again = "none" if len(decliner.held) == 1 else "given"
    job.play(*honest)
    decliner.poll()
    return f"second lease {again}; {job.seen(decliner=decliner, honest=honest)}"


@attack(
    "stall the siblings to win 1 of 1",
    "the cheat alone wins: no; cheat rejected 0; stallers withheld 0; honest payable 10; finished; books balanced",
)
def two_stallers_leave_the_cheat_alone(scene: Scene) -> str:
    """One ballot of three that committed is no majority, however long the others are silent."""
    job = scene.post(deadlines=SHORT, replication={"name": "fixed", "replicas": 3, "max_replicas": 7})
    cheat, *stallers = job.team(NOISE, STALLER, STALLER)
    job.gather(cheat, *stallers)
    honest = job.present(*[HONEST] * 4)
    job.commit(cheat, *stallers)
    job.opened(cheat)
    reveal(cheat)
    wait_until(lambda: job.fetch_view(f"/tasks/{cheat.newest().lease.task}")["wave"] == 1, "the split")
    alone = "yes" if job.paid(cheat) else "no"
    job.play(cheat, *honest)
    for staller in stallers:
        staller.poll()
    told = job.seen(cheat=cheat, stallers=stallers, honest=honest)
    return f"the cheat alone wins: {alone}; {told}"


@attack("commit and stall", "staller withheld 0; honest payable 10; finished; books balanced")
def a_commitment_that_is_never_opened(scene: Scene) -> str:
    job = scene.post(deadlines=SHORT)
    staller, *honest = job.team(STALLER, HONEST, HONEST)
    job.play(staller, *honest)
    return job.seen(staller=staller, honest=honest)


@attack("detecting replicated tasks", "siblings seen before committing: 0; the lease tells nothing of them")
def looking_for_siblings_before_committing(scene: Scene) -> str:
    """A cheat that saw that it was alone with its colluders, or alone at all, would cheat just then."""
    job = scene.post()
    looker, *others = job.team(*[HONEST] * 3)
    job.gather(looker, *others)
    names = {other.address.lower() for other in others}
    doors = [f"/tasks/{looker.newest().lease.task}", "/tasks", "/verdicts", "/payments", "/rounds", "/stats"]
    seen = sum(
        name in str(looker.http.get(f"/v1/jobs/{job.id}{door}").json()).lower() for name in names for door in doors
    )
    lease = looker.newest().lease.model_dump_json().lower()
    tells = "something" if any(name in lease for name in names) or "replicas" in lease else "nothing"
    job.play(looker, *others)
    return f"siblings seen before committing: {seen}; the lease tells {tells} of them"


@attack("arrival-order tie", "first inconclusive 0; last inconclusive 0; cancelled; books balanced")
def two_against_two_who_came_first(scene: Scene) -> str:
    job = scene.post(replication={"name": "fixed", "replicas": 4, "max_replicas": 4})
    first, last = job.team(TRIPLED, TRIPLED), job.team(HONEST, HONEST)
    job.gather(*first, *last)
    job.commit(*first, *last)
    for worker in (*first, *last):
        job.opened(worker)
        reveal(worker)
    for worker in (*first, *last):
        worker.poll()
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    return job.seen(first=first, last=last)


@attack("false class claim", "stranger no lease 0; honest payable 10; finished; books balanced")
def a_class_that_nobody_else_is_of(scene: Scene) -> str:
    """Votes are within one determinism class: a worker that claims another gets no seat beside this one's."""
    job = scene.post()
    stranger, *honest = job.team(TRIPLED, HONEST, HONEST, HONEST)
    stranger.determinism_class = "another machine"
    job.play(stranger, *honest)
    return job.seen(stranger=stranger, honest=honest)
