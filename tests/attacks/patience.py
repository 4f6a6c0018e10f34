"""Cheats that wait: for a quorum of their own, for trust, for a way to push unseen, for an answer to use again."""

import numpy as np

from contracts import calls, stakes
from contracts.rpc import call_json_rpc
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, TaskState
from requester.features.stakes import compute_quorum_hash
from tests.attacks.audits import ALWAYS, Auditor, finish
from tests.attacks.registry import attack
from tests.attacks.scene import QUICK, UNIT, Posted, Scene, funded
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, TRIPLED, Behaviour, changed
from tests.kit.contract_calls import to_burn
from tests.kit.scripted import Held
from tests.onchain import HOUR, with_money
from tests.ops.served import served
from tests.patience import wait_until

ALONE = {"name": "audited", "audit": 1e-9}
"""One replica decides a task; once its class is proven hardly any is audited."""
PROVING = 3
"""Operators whose audits prove a class."""
AT_RISK, STAKE, BOND = 300, 1_000, 5
"""Units."""


class Repeater(ScriptedWorker):
    """It computes once, and gives that answer for whatever it is asked."""

    def computed(self, held: Held) -> Held:
        payload = next((other.payload for other in self.held.values() if other.payload), held.payload)
        done = super().computed(held)
        return self._put(done, payload=payload) if payload else done


def proven(job: Posted, *workers: ScriptedWorker) -> Auditor:
    """The first round is theirs, a task each, and its audits prove their class."""
    auditor = Auditor(job)
    job.gather(*workers)

    def seen() -> bool:
        auditor.run()
        return len(job.fetch_view("/audits")["items"]) == PROVING

    job.play(*workers, done=seen)
    assert job.fetch_view()["class_proven"]
    return auditor


def standing(worker: ScriptedWorker) -> str:
    told = worker.job.scene.requester.get(f"/v1/workers/{worker.address}").json()
    return "barred" if told["barred"] else "trusted" if told["reputation"] else "unknown"


def found(job: Posted) -> str:
    """How its audits ended, each way once."""
    return "+".join(sorted({audit["state"] for audit in job.fetch_view("/audits")["items"]})) or "none"


def leaning(job: Posted) -> set[str]:
    """The operators that any merge found leaning."""
    rounds = job.fetch_view("/rounds?limit=200")["items"]
    return {operator for row in rounds for operator in (row["drift"] or {}).get("leaning", ())}


def model(job: Posted, rounds: int = 1) -> str:
    return "same model" if job.fetch_view()["parameters"] == job.scene.clean(rounds) else "another model"


@attack(
    "silent quorum",
    "alone passed; together failed+passed; liars barred; liars payable 10; honest payable 20; finished; "
    "books balanced; same model",
    alone=True,
)
def honest_but_where_they_hold_the_majority(scene: Scene) -> str:
    """Votes never see it: alone among honest workers a liar answers rightly, the two together lie as one."""
    watched, taken = scene.post(audit=ALWAYS), scene.post(audit=ALWAYS)
    waiting, *others = watched.team(HONEST, HONEST, HONEST)
    finish(watched, Auditor(watched), waiting, *others)
    honest, liars = taken.scripted(), [ScriptedWorker(taken, TRIPLED, waiting.key), taken.scripted(TRIPLED)]
    auditor = Auditor(taken)
    taken.play(honest, *liars, done=auditor.claim)
    auditor.run()
    finish(taken, auditor, honest, *taken.team(HONEST, HONEST))
    for liar in liars:
        liar.poll()
    words = "+".join(dict.fromkeys(standing(liar) for liar in liars))
    return (
        f"alone {found(watched)}; together {found(taken)}; liars {words}; "
        f"{taken.seen(liars=liars[1], honest=honest)}; {model(taken)}"
    )


@attack(
    "reputation sleeper",
    "before trusted; audits failed+passed; afterwards barred; lies that stand: few; finished; books balanced",
    alone=True,
)
def honest_until_it_is_trusted(scene: Scene) -> str:
    """Seven audits in ten: of its lies only those stand that were final before one of them was drawn."""
    job = scene.post(rounds=8, tasks_per_round=3, replication={"name": "audited", "audit": 0.7}, budget=str(900 * UNIT))
    sleeper, *honest = job.team(HONEST, HONEST, HONEST)
    auditor = proven(job, sleeper, *honest)
    before, awake = standing(sleeper), len(sleeper.held)
    sleeper.behaviour = TRIPLED
    finish(job, auditor, sleeper, *honest)
    lies = {held.lease.task for held in list(sleeper.held.values())[awake:]}
    stood = [task for task in lies if job.fetch_view(f"/tasks/{task}")["state"] == TaskState.FINAL]
    words = "few" if len(stood) <= 3 else f"{len(stood)} of {len(lies)}"
    return (
        f"before {before}; audits {found(job)}; afterwards {standing(sleeper)}; lies that stand: {words}; "
        f"{job.fetch_view()['state']}; {job.balanced()}"
    )


@attack(
    "shared canary",
    "class proven: no; audits failed; Sybils barred; honest payable 30; finished; books balanced; same model",
    alone=True,
)
def one_answer_that_all_sybils_give(scene: Scene) -> str:
    """They agree with each other in everything: only agreement with the auditor, each on its task, proves a class."""
    job = scene.post(tasks_per_round=3, replication=ALONE)
    one_answer = Behaviour(lambda answer, _address: {name: np.zeros_like(tensor) for name, tensor in answer.items()})
    sybils = job.team(one_answer, one_answer, one_answer)
    auditor = Auditor(job)
    job.gather(*sybils)

    def caught() -> bool:
        auditor.run()
        return len(job.fetch_view("/audits")["items"]) == len(sybils)

    job.play(*sybils, done=caught)
    proof, audits = ("yes" if job.fetch_view()["class_proven"] else "no"), found(job)
    words = "+".join(dict.fromkeys(standing(sybil) for sybil in sybils))
    honest = job.scripted()
    finish(job, auditor, honest)
    honestly = scene.post(tasks_per_round=3, replication=ALONE)
    finish(honestly, Auditor(honestly), honestly.scripted())
    same = "same" if job.fetch_view()["parameters"] == honestly.fetch_view()["parameters"] else "another"
    return f"class proven: {proof}; audits {audits}; Sybils {words}; {job.seen(honest=honest)}; {same} model"


@attack(
    "error just under tau, for many rounds",
    "audits passed; leaning the patient; cancelled; books balanced",
    alone=True,
)
def a_little_the_same_way_every_time(scene: Scene) -> str:
    """Each answer alone would pass for honest noise, and no audit covers it. Its constant lean exposes it.

    The model hardly learns: beside the small gradients of one that has, a constant lean is long, and audited for that.
    """
    slow = {"name": "sgd", "lr": 1e-6}
    job = scene.post(rounds=120, tasks_per_round=3, replication=ALONE, budget=str(5_000 * UNIT), optimizer=slow)
    patient, *honest = job.team(HONEST, HONEST, HONEST)
    auditor = proven(job, patient, *honest)
    patient.behaviour = changed(lambda array: array + 0.5, "w")
    finish(job, auditor, patient, *honest, done=lambda: leaning(job))
    told = leaning(job)
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    names = {patient.address: "the patient"} | dict.fromkeys([worker.address for worker in honest], "the honest")
    words = "+".join(sorted(names[operator] for operator in told)) or "nobody"
    return f"audits {found(job)}; leaning {words}; {job.fetch_view()['state']}; {job.balanced()}"


@attack(
    "an answer handed in twice",
    "audits failed+passed; the repeater barred; honest trusted; finished; books balanced",
    alone=True,
)
def what_it_computed_once_for_every_task(scene: Scene) -> str:
    """Its answers are accepted one by one where one replica decides; two with one root are both audited."""
    job = scene.post(rounds=8, tasks_per_round=3, replication=ALONE, budget=str(900 * UNIT))
    honest = job.team(HONEST, HONEST, HONEST)
    auditor = proven(job, *honest)
    repeater = Repeater(job)
    finish(job, auditor, repeater, honest[0])
    words = "+".join(dict.fromkeys(standing(worker) for worker in honest))
    return (
        f"audits {found(job)}; the repeater {standing(repeater)}; honest {words}; {job.fetch_view()['state']}; "
        f"{job.balanced()}"
    )


@attack(
    "a lie with a stake behind it",
    f"audit failed; accusation slashed; of {STAKE} staked {STAKE - AT_RISK} left; to be burnt {AT_RISK}",
)
def what_is_at_risk_is_lost(_scene: Scene) -> str:
    """The service accuses automatically; a worker that does not contest in time is slashed, and its stake burnt."""
    with funded() as (data, chain, ledger), served(data, chain.url, QUICK) as market:
        scene = Scene(market, ledger)
        windows = {"slash_s": 20 * HOUR, "contest_s": 3 * HOUR, "decide_s": 3 * HOUR}
        terms = {"validators": [address_of(scene.key())], "bond": str(BOND * UNIT), **windows}
        job = scene.post(audit=ALWAYS, replication=ALONE, stake=terms)
        liar, auditor = job.scripted(TRIPLED), Auditor(job)
        joined(job, liar)
        job.play(liar, done=auditor.claim)
        auditor.run()

        def accusation() -> str:
            told = [each["state"] for audit in job.fetch_view("/audits")["items"] for each in audit["accusations"]]
            return str(told[0]) if told else ""

        wait_until(lambda: accusation() == "open", "the accusation")
        call_json_rpc(ledger.web3, "evm_increaseTime", hex(3 * HOUR + 2))
        call_json_rpc(ledger.web3, "evm_mine")
        wait_until(lambda: accusation() == "slashed", "the slash")
        left, burnt = stakes.staker(ledger, liar.address).amount // UNIT, to_burn(ledger) // UNIT
        return f"audit {found(job)}; accusation {accusation()}; of {STAKE} staked {left} left; to be burnt {burnt}"


def joined(job: Posted, worker: ScriptedWorker) -> None:
    """Puts its stake at risk in the job, and waits until the market has seen it."""
    ledger, terms = job.scene.ledger, job.spec.stake
    assert terms is not None
    market = ledger.deployment.contract
    joins = calls.join_job(market, job.chain_job, Amount(AT_RISK * UNIT), compute_quorum_hash(terms))
    with_money(ledger, worker.key)
    for call in (calls.stake(market, Amount(STAKE * UNIT)), joins):
        require_receipt(execute_call(ledger.web3, worker.key, call))
    known = f"/v1/workers/{worker.address}"

    def seen() -> bool:
        worker.poll(wait_s=1.0)
        return bool(job.scene.requester.get(known).json()["stakes"])

    wait_until(seen, "the market sees the stake")
