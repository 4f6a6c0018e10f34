"""Names that are only claimed: another's payout address, a payout of one's own again, classes that nobody has."""

from collections import Counter
from typing import Any

from gradmarket.market.signing import address_of
from gradmarket.market.terms import blob_digest
from tests.attacks.audits import ALWAYS, Auditor, finish
from tests.attacks.registry import attack
from tests.attacks.scene import PRICE, UNIT, Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, TRIPLED
from tests.patience import wait_until

ALONE = {"name": "audited", "audit": 1.0}
SYBILS = 66


def record(scripted: ScriptedWorker) -> dict[str, Any]:
    """The public view of a worker."""
    told: dict[str, Any] = scripted.http.get(f"/v1/workers/{scripted.address}").json()
    return told


def passed(scripted: ScriptedWorker) -> int:
    return sum(row["passed"] for row in record(scripted)["reputation"])


def barred(scripted: ScriptedWorker) -> str:
    return "yes" if record(scripted)["barred"] else "no"


def lied(job: Posted, liar: ScriptedWorker) -> Auditor:
    """It is paid for a lie that an audit then finds."""
    auditor = Auditor(job)
    job.play(liar, done=auditor.claim)
    auditor.run()
    return auditor


@attack(
    "a victim barred by a stranger's claim",
    "victim barred: no; liar barred: yes; liar payable 10; victim payable 10; finished; books balanced",
    alone=True,
)
def a_lie_in_a_victim_s_name(scene: Scene) -> str:
    job = scene.post(audit=ALWAYS, replication=ALONE)
    victim, liar = job.team(HONEST, TRIPLED)
    liar.sign_in(payout=victim.address)
    auditor = lied(job, liar)
    told = f"victim barred: {barred(victim)}; liar barred: {barred(liar)}"
    finish(job, auditor, victim)
    liar.poll()
    return f"{told}; {job.seen(liar=liar, victim=victim)}"


@attack(
    "a record borrowed by naming its owner",
    "audits passed: owner 2, who names it 0, who has its consent 2; owner payable 20; finished; books balanced",
    alone=True,
)
def a_newcomer_names_who_is_proven(scene: Scene) -> str:
    job = scene.post(audit=ALWAYS, replication=ALONE, tasks_per_round=2)
    owner = job.scripted()
    finish(job, Auditor(job), owner)
    borrower = job.scripted()
    borrower.sign_in(payout=owner.address)
    named = passed(borrower)
    borrower.sign_in(payout=owner.address, by=owner.key)
    told = f"owner {passed(owner)}, who names it {named}, who has its consent {passed(borrower)}"
    return f"audits passed: {told}; {job.seen(owner=owner)}"


@attack(
    "a record paid by its own job",
    "audits passed 2, 2; of them on one task 1; liars paid there 0",
    alone=True,
)
def a_ring_pays_itself_dearly(scene: Scene) -> str:
    """Two prove themselves in dear jobs of two requesters that the ring owns as well, and lie in a stranger's."""
    proven = {"name": "proven", "replicas": 2, "proof": 1, "audit": 1e-9}
    keys, auditors = [scene.key(), scene.key()], []
    for token in range(2):
        name = f"ring-{token}-{scene.key().to_hex()[2:10]}"
        made = scene.requester.post("/v1/tokens", json={"name": name, "role": "submit"}).json()
        with scene.market.http(made["token"]) as ring:
            for blob in (scene.data, scene.manifest, scene.document, scene.parameters):
                ring.put(f"/v1/blobs/{blob_digest(blob)}", content=blob).raise_for_status()
            dear = scene.spec(name=name, replication=proven, price=str(100 * PRICE * UNIT), budget=str(10**13))
            posted = ring.post("/v1/jobs", json=dear | {"tasks_per_round": 2})
        assert posted.status_code == 201, posted.text
        own = Posted(scene, posted.json()["id"])
        wait_until(lambda own=own: own.fetch_view()["state"] == "running", "it runs")  # type: ignore[misc]
        auditors.append(Auditor(own))
        finish(own, auditors[-1], *(own.scripted(key=key) for key in keys))
    auditor = auditors[-1]
    job = scene.post(replication=proven, rounds=4)
    liars = [job.scripted(TRIPLED, key=key) for key in keys]
    before = [job.paid(liar) for liar in liars]
    told = f"audits passed {', '.join(str(passed(liar)) for liar in liars)}"
    job.play(*liars, done=lambda: auditor.claim() or any(liar.states == "payable" for liar in liars))
    places = Counter(held.lease.task for liar in liars for held in liar.held.values())
    auditor.work = None
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    gained = sum(job.paid(liar) for liar in liars) - sum(before)
    return f"{told}; of them on one task {max(places.values())}; liars paid there {gained}"


@attack(
    "a barred wallet under another payout",
    "barred: yes, yes, yes; who vouches barred: no; leases after the lie 0; liar payable 10; honest payable 10; "
    "finished; books balanced",
    alone=True,
)
def a_liar_is_paid_elsewhere_from_now_on(scene: Scene) -> str:
    """Under its own name, under another payout, and under one whose consenting key is innocent."""
    job = scene.post(audit=ALWAYS, replication=ALONE)
    liar, honest, friend = job.scripted(TRIPLED), job.scripted(), scene.key()
    auditor, told = lied(job, liar), []
    for payout, by in ((liar.address, None), (address_of(scene.key()), None), (address_of(friend), friend)):
        liar.sign_in(payout=payout, by=by)
        liar.poll(wait_s=1.0)
        told.append(barred(liar))
    vouching = job.scripted(key=friend)
    bars = f"barred: {', '.join(told)}; who vouches barred: {barred(vouching)}"
    leases = len(liar.held) - 1
    finish(job, auditor, honest)
    return f"{bars}; leases after the lie {leases}; {job.seen(liar=liar, honest=honest)}"


@attack(
    "Sybil classes",
    "honest payable 0; cancelled; books balanced",
)
def more_classes_than_anybody_can_count(scene: Scene) -> str:
    """Each signs in once under another class; two honest ones of two classes share a job all the same.

    Both answers are accepted; their pay waits, since no auditor came to score them yet.
    """
    verifier, replicas = {"name": "loss_change"}, {"name": "audited", "audit": 0.5}
    job = scene.post(verifier=verifier, replication=replicas, tasks_per_round=2, audit={"probability": 0.5})
    for number in range(2 * SYBILS):
        sybil = job.scripted()
        sybil.determinism_class = f"a{number % SYBILS}"
        sybil.poll()
    honest = job.team(HONEST, HONEST)
    for number, scripted in enumerate(honest):
        scripted.determinism_class = f"x{number}"
    job.play(*honest, done=lambda: all(scripted.states == "payable" for scripted in honest))
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    wait_until(lambda: job.fetch_view()["state"] == "cancelled", "it is cancelled")
    return job.seen(honest=honest)
