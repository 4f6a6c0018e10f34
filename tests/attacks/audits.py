"""Audits turned to somebody's profit: answers forged, copied or repeated, and the work of others held up."""

import secrets as chance
from collections.abc import Callable, Sequence

import httpx
from eth_keys.datatypes import PrivateKey

from gradmarket.market.features import claims as claim_messages
from gradmarket.market.features.claims import build_claim
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.rules import sketch_packing
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import Address, Digest, Hash, blob_digest
from gradmarket.market.wire.audit_messages import AuditWork, PanelOpening, PanelSeal
from gradmarket.sealing import SealingKey
from tests.attacks.registry import attack
from tests.attacks.scene import OVER, Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, TRIPLED, Spoil
from tests.patience import PATIENCE_S, wait_until

ALWAYS = {"probability": 1.0}
NOBODY = Address("0x" + "0" * 40)
WRONG = Digest("blake3:" + "0" * 64)


class Auditor:
    """The requester's auditor: computes one job's audits as workers of its class do; its class is known then."""

    def __init__(self, job: Posted, determinism_class: str = "cpu", kernels: Spoil = HONEST.spoil) -> None:
        self.job, self.http = job, job.scene.requester
        self.determinism_class, self.kernels = determinism_class, kernels
        self.work: AuditWork | None = None
        self.claim()

    def claim(self) -> AuditWork | None:
        """Returns the held work, or the next that is due."""
        if self.work is None:
            asked = {"auditor": "the attacked", "determinism_class": self.determinism_class}
            found = self.http.post("/v1/audits/claim", json=asked).json()["work"]
            self.work = AuditWork.model_validate(found) if found else None
        return self.work

    def report_run(self, work: AuditWork, run: int, root: Digest | None = None) -> str:
        """Reports one run, or the given root; returns whether to run the task again."""
        payload = self.job.compute(work.offer, self.kernels, NOBODY, "honest")
        said = {"auditor": "the attacked", "run": work.run + run, "root": root or blob_digest(payload)}
        if work.wave_seed is not None:
            said["sketch"] = self.sketch(work, payload, work.wave_seed)
        answer = self.http.put(f"/v1/audits/{work.task}", json=said)
        return ("again" if answer.json()["again"] else "enough") if answer.status_code == 200 else "refused"

    def sketch(self, work: AuditWork, payload: bytes, seed: Hash) -> dict[str, str]:
        made = sketch_packing.of_payload(self.job.layout, payload, load_codec("fp32"), work.offer.seed, seed)
        return {name: f"0x{numbers.hex()}" for name, numbers in sketch_packing.encode_sketch(made).items()}

    def plant(self) -> None:
        """Answers the task in hand, to which nobody has."""
        work = self.claim()
        assert work is not None
        assert work.planted
        root = blob_digest(self.job.compute(work.offer, self.kernels, NOBODY, "honest"))
        said = {"auditor": "the attacked", "run": work.run, "root": root}
        self.http.put(f"/v1/audits/{work.task}/planted", json=said).raise_for_status()
        self.work = None

    def calibrate(self) -> bool:
        """The next task that passed its audit in another class, where one waits for this one's sketch."""
        work = self.claim()
        if work is None or work.wave_seed is None or not work.calibrates:
            return False
        payload = self.job.compute(work.offer, self.kernels, NOBODY, "honest")
        said = {"auditor": "the attacked", "run": work.run, "root": blob_digest(payload)}
        said |= {"determinism_class": self.determinism_class, "sketch": self.sketch(work, payload, work.wave_seed)}
        self.http.put(f"/v1/audits/{work.task}/sketch", json=said).raise_for_status()
        self.work = None
        return True

    def run(self) -> None:
        """All of the next audit, where one is due, until it is judged."""
        work = self.claim()
        if work is not None and work.brings:
            payload = self.job.compute(work.offer, self.kernels, NOBODY, "honest")
            self.http.put(f"/v1/audits/payloads/{work.task}", content=bytes(payload)).raise_for_status()
            self.work = None
        elif work is not None:
            if self.report_run(work, 0) == "again":
                self.report_run(work, 1)
            wait_until(
                lambda: work.task in [audit["task"] for audit in self.job.fetch_view("/audits")["items"]], "the audit"
            )
            self.work = None


def finish(job: Posted, auditor: Auditor, *puppets: ScriptedWorker, done: Callable[[], object] = bool) -> None:
    """They live, and accepted tasks are audited, until the job is over or `done`."""

    def over() -> object:
        auditor.run()
        return job.fetch_view()["state"] in OVER or done()

    job.play(*puppets, done=over)


def won_by_liars(job: Posted, third: ScriptedWorker, liars: Sequence[ScriptedWorker]) -> None:
    """All hold leases and have committed, and their wave is open."""
    job.gather(third, *liars)
    job.commit(third, *liars)
    job.opened(third, *liars)


@attack(
    "forged opening vindicated",
    "audit failed; forger rejected 0; liars payable 10; cancelled; books balanced",
    alone=True,
)
def the_right_root_for_another_seal(scene: Scene) -> str:
    """It sealed anything, and names the right root when it is to open: the audit finds a root that it never sealed."""
    job = scene.post(audit=ALWAYS)
    forger, *liars = job.team(HONEST, TRIPLED, TRIPLED)
    won_by_liars(job, forger, liars)
    forger.poll(reveals=[forger.revelation(forger.newest(), salt=Hash(chance.token_bytes(32)))])
    auditor = Auditor(job)
    job.play(*liars, done=auditor.claim)
    auditor.run()
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    forger.poll()
    (found,) = job.fetch_view("/audits")["items"]
    return f"audit {found['state']}; {job.seen(forger=forger, liars=liars)}"


@attack(
    "a quorum's lie where audits are rare",
    "audit failed; planted 1, wrong 2, false alarms 1; cancelled; books balanced",
    alone=True,
)
def a_task_whose_answer_is_known(scene: Scene) -> str:
    """Audits are as good as never drawn, so two liars of three expect to be paid; the auditor had the answer before."""
    job = scene.post(audit={"probability": 1e-12, "planted": 1.0})
    third, *liars = job.team(HONEST, TRIPLED, TRIPLED)
    job.gather(third, *liars)
    auditor = Auditor(job)
    wait_until(auditor.claim, "a task to plant")
    auditor.plant()
    job.play(third, *liars, done=auditor.claim)
    auditor.run()
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    (found,), known = job.fetch_view("/audits")["items"], job.fetch_view("/trust")["planted"]
    shown = f"planted {known['tasks']}, wrong {known['wrong']}, false alarms {known['false_alarms']}"
    return f"audit {found['state']}; {shown}; {job.fetch_view()['state']}; {job.balanced()}"


@attack(
    "an auditor that copies",
    "honest 200; its digest again 409, 409; roots 409; a digest without key 409; 1 claim",
    alone=True,
)
def a_claim_by_what_is_public(scene: Scene) -> str:
    """The round's roots are public, and so is the first auditor's digest, once it is sent."""
    job = scene.post(audit={"probability": 1e-12, "claims": 2})
    team = job.team(HONEST, HONEST, HONEST)
    job.play(*team)
    offer = team[0].newest().lease.offer
    payload = job.compute(offer, HONEST.spoil, NOBODY, "honest")
    first, path = job.fetch_view("/rounds/0/claims"), f"/v1/jobs/{job.id}/rounds/0/claims"
    domain, keys = scene.ledger.domain(), (scene.key(), scene.key())

    def claim(key: PrivateKey, number: int, digest: Digest) -> int:
        signed = digest_struct(domain, build_claim(job.chain_job, 0, number, digest))
        body = {"number": number, "digest": digest, "signature": f"0x{sign_digest(key, signed).hex()}"}
        return scene.requester.put(path, json=body).status_code

    own = claim_messages.digest_answers(Hash(bytes.fromhex(first["key"][2:])), [payload])
    honest = claim(keys[0], 0, own)
    key = Hash(bytes.fromhex(job.fetch_view("/rounds/0/claims")["key"][2:]))
    copied = [claim(keys[1], number, own) for number in (0, 1)]
    roots = claim(keys[1], 1, claim_messages.digest_answers(key, [blob_digest(payload).encode()]))
    bare = claim(keys[1], 1, blob_digest(payload))
    count = len(job.fetch_view("/rounds/0/claims")["items"])
    again = f"its digest again {copied[0]}, {copied[1]}"
    return f"honest {honest}; {again}; roots {roots}; a digest without key {bare}; {count} claim"


@attack(
    "copy of an audited answer",
    "told 0 times before; vindicated payable 20; liars payable 10; honest payable 10; finished; books balanced; "
    "told afterwards",
    alone=True,
)
def the_answer_that_the_audit_found(scene: Scene) -> str:
    """A revoked task is repeated with the same seed: a reader of the right root would commit to it."""
    job = scene.post(audit=ALWAYS)
    vindicated, *liars = job.team(HONEST, TRIPLED, TRIPLED)
    auditor = Auditor(job)
    job.play(vindicated, *liars, done=auditor.claim)
    auditor.run()
    held = vindicated.newest()
    doors = ("/audits", "/tasks", f"/tasks/{held.lease.task}", "/verdicts")
    before = sum(str(job.fetch_view(door)).count(held.root) for door in doors)
    honest = job.team(HONEST, HONEST)
    finish(job, auditor, vindicated, *honest)
    liars[0].poll(), liars[1].poll()
    told = job.seen(vindicated=vindicated, liars=liars, honest=honest)
    after = any(held.root in str(job.fetch_view(door)) for door in doors)
    return f"told {before} times before; {told}; {'told' if after else 'nothing told'} afterwards"


@attack(
    "an audit's answer sent again",
    "again, again, refused, enough; audit passed; honest payable 10; finished; books balanced",
    alone=True,
)
def one_wrong_run_is_said_twice(scene: Scene) -> str:
    """Only two runs convict: the same one repeated or contradicted is still one."""
    job = scene.post(audit=ALWAYS)
    honest = job.team(HONEST, HONEST, HONEST)
    auditor = Auditor(job)
    job.play(*honest, done=auditor.claim)
    work = auditor.claim()
    assert work is not None
    said = [auditor.report_run(work, *run) for run in ((0, WRONG), (0, WRONG), (0,), (1,))]
    finish(job, auditor, *honest)
    (found,) = job.fetch_view("/audits")["items"]
    return f"{', '.join(said)}; audit {found['state']}; {job.seen(honest=honest)}"


@attack(
    "a job held up by an audit elsewhere",
    "audit failed; the other finished with 0 audits; books balanced",
    alone=True,
)
def liars_at_work_where_nobody_audits(scene: Scene) -> str:
    """Paid tasks of a job without audits are not reopened: no auditor would ever come there."""
    job = scene.post(audit=ALWAYS)
    other = scene.post(tasks_per_round=2, deadlines={"lease_s": 5, "wave_s": 5, "upload_s": 5})
    third, *liars = job.team(HONEST, TRIPLED, TRIPLED)
    same = [ScriptedWorker(other, TRIPLED, liar.key) for liar in liars]
    for liar, mate in zip(liars, same, strict=True):
        mate.held = liar.held  # a poll brings a worker the news of all its jobs
    mates = [other.scripted(), *same]
    other.play(
        *mates, done=lambda: "accepted" in str(other.fetch_view("/tasks")) or other.fetch_view()["state"] in OVER
    )
    auditor = Auditor(job)
    job.play(third, *liars, done=auditor.claim)
    auditor.run()
    other.play(*mates, *other.team(HONEST, HONEST))
    (found,) = job.fetch_view("/audits")["items"]
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    there = f"the other {other.fetch_view()['state']} with {len(other.fetch_view('/audits')['items'])} audits"
    return f"audit {found['state']}; {there}; {other.balanced()}"


class Seated:
    """An auditor of a panel, with a token of its own; it finds `answer`, or the task's own result."""

    def __init__(self, job: Posted, name: str, answer: Digest | None = None, determinism_class: str = "cpu") -> None:
        made = job.scene.requester.post("/v1/tokens", json={"name": name, "role": "audit"})
        made.raise_for_status()
        bearer = {"Authorization": f"Bearer {made.json()['token']}"}
        self.http = httpx.Client(base_url=job.scene.url, headers=bearer, trust_env=False, timeout=PATIENCE_S)
        self.job, self.answer, self.key = job, answer, SealingKey(name, job.scene.key())
        self.determinism_class, self.seated = determinism_class, False

    def turn(self) -> None:
        """Seals or opens its answer, as its panel asks."""
        asked = {"auditor": self.key.auditor, "determinism_class": self.determinism_class}
        found = self.http.post("/v1/audits/claim", json=asked).json()["work"]
        if found is None:
            return
        work, domain, self.seated = AuditWork.model_validate(found), self.job.domain, True
        root = self.answer or blob_digest(self.job.compute(work.offer, HONEST.spoil, NOBODY, "honest"))
        offer = work.offer.struct()
        said: PanelSeal | PanelOpening = self.key.seal(domain, offer, work.run, root)
        if work.panel == "open":
            said = self.key.open(domain, offer, work.run, root, 0.0)
        door = "seal" if work.panel == "seal" else "opening"
        self.http.put(f"/v1/audits/{work.task}/{door}", json=said.model_dump(mode="json")).raise_for_status()


@attack(
    "colluding auditors",
    "audit failed; 2 auditors barred; honest payable 10; liars payable 10; cancelled; books balanced",
    alone=True,
)
def two_auditors_that_confirm_a_lie(scene: Scene) -> str:
    """Two of a panel of three repeat the answer of two liars: three equal answers decide, so others are asked."""
    job = scene.post(audit={"probability": 1.0, "auditors": {"count": 3, "agree": 3}})
    third, *liars = job.team(HONEST, TRIPLED, TRIPLED)
    Seated(job, "panel-first").turn()  # the class is known to have auditors
    job.gather(third, *liars)
    lie = liars[0].newest().root
    ring = [Seated(job, f"panel-colluder-{number}", lie) for number in range(2)]
    honest = [Seated(job, f"panel-honest-{number}") for number in range(3)]

    def over() -> bool:
        for auditor in (*ring, *honest):
            if auditor in ring or all(liar.seated for liar in ring):  # the honest ones leave the ring its seats
                auditor.turn()
        return bool(job.fetch_view("/audits")["items"])

    job.play(third, *liars, done=over)
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    third.poll()
    (found,), panels = job.fetch_view("/audits")["items"], job.fetch_view("/trust")["panels"]
    return f"audit {found['state']}; {panels['barred']} auditors barred; {job.seen(honest=third, liars=liars)}"
