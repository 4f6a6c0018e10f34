"""Hearings of a market that somebody would turn: auditors that act as one, a service that forges one, one that dies."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eth_keys.datatypes import PrivateKey

from gradmarket.auditor import Machine, open_machine
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import Reply, digest_reply
from gradmarket.market.features.disputes.receipts import KeptReceipt, receipt_struct
from gradmarket.market.features.disputes.transcript import terms_of
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import Address
from gradmarket.market.wire.hearing_messages import (
    SILENCE,
    AuditorQuestion,
    AuditorQuestions,
    AuditorStatement,
    PublishedHearing,
    SignedRuling,
    build_ruling,
)
from gradmarket.market.wire.poll import hash_of
from gradmarket.public_audit.audit_run import AuditPlan, open_job
from gradmarket.public_audit.features.disputes import prove_disputes, trace_on
from gradmarket.public_audit.job_proof import JobRecord, prove_record
from gradmarket.public_audit.log_proof import prove_log
from tests.attacks.audits import Seated
from tests.attacks.disputes import (
    HEARD,
    describe_ruling,
    find_class,
    hear_both,
    open_side,
    seat_liar,
    signed_in,
)
from tests.attacks.registry import attack
from tests.attacks.scene import QUICK, Posted, Scene, funded
from tests.kit.behaviour import HONEST, TRIPLED
from tests.ops.served import served

SHORT = {"lease_s": 20, "wave_s": 20, "upload_s": 20}
"""No answer in a hearing has more than its least time."""
FOUND = "the audit finds each forgery, and nothing where none is"
OUTNUMBERED = "audit failed; who lied lost at its lie, who was silent by silence; 2 auditors barred; honest payable 10"


@attack("colluding auditors", OUTNUMBERED, alone=True)
def a_ring_of_auditors_before_the_referee(scene: Scene) -> str:
    """Two of a panel of three open the answer of two liars; one defends it, the other stays silent."""
    panel = {"probability": 1.0, "auditors": {"count": 3, "agree": 3}}
    job = scene.post(disputes="referee", audit=panel, deadlines=SHORT)
    third, *liars = job.team(HONEST, TRIPLED, TRIPLED)
    Seated(job, "heard-first", determinism_class=find_class()).turn()
    for worker in (third, *liars):
        worker.determinism_class = find_class()
    job.gather(third, *liars)
    lie = liars[0].newest().root
    stands, silent = (Seated(job, f"heard-{name}", lie, find_class()) for name in ("stands", "silent"))
    honest, over = Seated(job, "heard-honest", determinism_class=find_class()), threading.Event()

    def is_over() -> bool:
        for auditor in (honest, stands, silent):
            auditor.turn()
        return bool(job.fetch_view("/audits")["items"])

    with ThreadPoolExecutor(2) as pool:
        attending = [pool.submit(attend_as_auditor, job, one, one is stands, over) for one in (honest, stands)]
        try:
            job.play(third, *liars, done=is_over)
        finally:
            over.set()
        for each in attending:
            each.result()
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    third.poll()
    (found,), barred = job.fetch_view("/audits")["items"], job.fetch_view("/trust")["panels"]["barred"]
    (task,) = (each["id"] for each in job.fetch_view("/tasks")["items"] if each["state"] == "revoked")
    rulings = [one["ruling"] for one in job.fetch_view(f"/tasks/{task}")["hearings"]]
    whys = {loser: ruling["why"] for ruling in rulings for loser in ruling["wrong"]}
    lied = "root of the payload" in whys.get(stands.key.signer, "")
    fell = whys.get(silent.key.signer) == "it did not answer in time"
    if not lied or not fell or len(whys) != 2:
        return f"{whys}: {honest.key.signer}, {stands.key.signer} stood by a lie, {silent.key.signer} was silent"
    how = "who lied lost at its lie, who was silent by silence"
    return f"audit {found['state']}; {how}; {barred} auditors barred; honest {third.states} {third.job.paid(third)}"


def attend_as_auditor(job: Posted, seated: Seated, lies: bool, over: threading.Event) -> None:
    """Answers the job's referee until it is over, in one hearing after another."""
    while not over.is_set():
        with signed_in(job.scene, job.scene.key()) as (settings, market), ExitStack() as stack:
            heard: tuple[tuple[Address, Address], CarefulSide] | None = None
            while not over.is_set():
                for asked in list_questions(seated):
                    if heard is None:
                        offer, key = asked.offer.struct(), seated.key.key
                        side = stack.enter_context(open_side(job, key, asked, offer, settings, market, lies))
                        heard = asked.sides, side
                    if asked.sides == heard[0]:
                        answer(seated, asked, heard[1].answer(PutQuestion.read(asked)))
                if heard is not None and any(asked.sides != heard[0] for asked in list_questions(seated)):
                    break


def list_questions(seated: Seated) -> tuple[AuditorQuestion, ...]:
    asked: dict[str, str | float] = {"signer": seated.key.signer, "wait_s": 1.0}
    return AuditorQuestions.model_validate(seated.http.get("/v1/audits/hearings", params=asked).json()).questions


def answer(seated: Seated, asked: AuditorQuestion, reply: Reply) -> None:
    fields: dict[str, Any] = {"side": reply.side, "number": reply.number, "said": digest_reply(reply.said)}
    said = AuditorStatement(**fields, signature=reply.signature, task=asked.task).model_dump(mode="json")
    headers = {f"hearing-{name}": str(value) for name, value in said.items()}
    seated.http.post("/v1/audits/hearings", headers=headers, content=reply.said).raise_for_status()


@attack("a requester that forges a hearing", FOUND, alone=True)
def a_service_that_shows_another_hearing_than_it_held(scene: Scene) -> str:
    """It has its own key: its false statements and rulings are signed; it cannot sign the sides' statements."""
    job, honest, liar = seat_liar(scene, visibility="public")
    if (told := describe_ruling(job, honest, liar, hear_both(job, honest, liar))) != HEARD:
        return told
    job.balanced()
    with TemporaryDirectory() as folder:
        plan = AuditPlan(scene.url, job.id, Path(folder), rpc=scene.market.rpc)
        with open_job(plan, lambda *_: None) as opened, open_machine(Machine(Path(folder), "cpu", 1)) as mine:
            record = opened.record
            trace = trace_on(mine, opened.fetcher, record.publication)

            def find_faults(told: JobRecord, kept: Sequence[KeptReceipt] = ()) -> list[str]:
                results = [*prove_record(told), prove_log(told), *prove_disputes(told, trace, kept)]
                return [f"{result.rule}: {fault}" for result in results for fault in result.faults]

            receipts = sign_receipts(record, key := read_signer(scene))
            if faults := find_faults(record, receipts):
                return f"an honest record has faults: {faults}"
            missed = [name for name, told in list_forgeries(record, key, honest.address) if not find_faults(told)]
            silenced = [(f"{one.side} is silent", silence(record, key, one.side)) for one in receipts]
            missed += [name for name, told in silenced if not find_faults(told, receipts)]
    return f"not found: {', '.join(missed)}" if missed else FOUND


def sign_receipts(record: JobRecord, key: PrivateKey) -> list[KeptReceipt]:
    """The receipts of both sides' last answers, as the service gave them."""
    heard = ((task, shown, one) for task, shown in record.evidence.items() for one in shown.hearings or ())
    ((task, shown, held),) = heard
    receipts = []
    for said in held.questions[-1].answers:
        roots = hash_of(held.roots[0]), hash_of(held.roots[1])
        fields: dict[str, Any] = {"job": shown.offer.job, "task": task, "offer": shown.offer_digest}
        fields |= {"sides": held.sides, "roots": roots}
        fields |= {"side": said.side, "number": len(held.questions) - 1, "said": said.said}
        kept = KeptReceipt(**fields, at=said.at, signature=bytes(65))
        signature = sign_digest(key, digest_struct(record.domain, receipt_struct(kept)))
        receipts.append(kept.model_copy(update={"signature": signature}))
    return receipts


def silence(record: JobRecord, key: PrivateKey, side: Address) -> JobRecord:
    """The hearing ends with the silence of this side, whose last answer is left out."""
    ((task, shown),) = ((task, shown) for task, shown in record.evidence.items() if shown.hearings)
    (held,) = shown.hearings or ()
    (*before, last) = held.questions
    dispute, why = terms_of(record.domain, shown.offer_digest, held).dispute, SILENCE
    struct = build_ruling(dispute, held.sides, frozenset({side}), None, why)
    ruling = SignedRuling(
        wrong=(side,), leaf=None, why=why, signature=sign_digest(key, digest_struct(record.domain, struct))
    )
    left = last.model_copy(update={"answers": tuple(one for one in last.answers if one.side != side)})
    told = held.model_copy(update={"questions": (*before, left), "ruling": ruling})
    return replace(record, evidence={**record.evidence, task: shown.model_copy(update={"hearings": (told,)})})


def read_signer(scene: Scene) -> PrivateKey:
    text = (scene.market.data / "keys" / "signer").read_text().strip()
    return PrivateKey(bytes.fromhex(text.removeprefix("0x")))


def list_forgeries(record: JobRecord, key: PrivateKey, honest: Address) -> list[tuple[str, JobRecord]]:
    ((task, shown),) = ((task, shown) for task, shown in record.evidence.items() if shown.hearings)
    (held,) = shown.hearings or ()
    ruling, (*before, last) = held.ruling, held.questions
    assert ruling is not None

    def show(*hearings: PublishedHearing) -> JobRecord:
        return replace(record, evidence={**record.evidence, task: shown.model_copy(update={"hearings": hearings})})

    def rule(wrong: tuple[Address, ...], why: str) -> PublishedHearing:
        dispute = terms_of(record.domain, shown.offer_digest, held).dispute
        struct = build_ruling(dispute, held.sides, frozenset(wrong), ruling.leaf, why)
        signature = sign_digest(key, digest_struct(record.domain, struct))
        signed = SignedRuling(wrong=wrong, leaf=ruling.leaf, why=why, signature=signature)
        return held.model_copy(update={"ruling": signed})

    own = [one for one in last.answers if one.side == honest]
    others = [one for one in last.answers if one.side != honest]
    forged = [one.model_copy(update={"body": "0x00", "size": 1}) for one in own]
    other_words, unsaid = (last.model_copy(update={"answers": (*said, *others)}) for said in (forged, []))
    return [
        ("the honest side loses", show(rule((honest,), ruling.why))),
        ("nobody loses", show(rule((), "the referee cannot go on"))),
        ("other words of the same ruling", show(rule(ruling.wrong, "because"))),
        ("another answer of the honest side", show(held.model_copy(update={"questions": (*before, other_words)}))),
        ("none of the honest side", show(held.model_copy(update={"questions": (*before, unsaid)}))),
        ("no hearing at all", show()),
        ("the same hearing twice", show(held, held)),
        ("as if of auditors", show(held.model_copy(update={"run": 0}))),
    ]


@attack("a liar before the job's referee", HEARD)
def a_service_that_is_killed_while_it_hears(_scene: Scene) -> str:
    """Both had answered once: answers are stored, and no side loses by a time without questions."""
    with funded() as (data, chain, ledger):
        with served(data, chain.url, QUICK) as market:
            job, honest, liar = seat_liar(Scene(market, ledger))
            begun = hear_both(job, honest, liar, most=1)
            market.process.kill()
        with served(data, chain.url, QUICK) as market:
            after = Posted(Scene(market, ledger), job.id)
            for worker in (honest, liar):
                worker.follow(after)
            gone_on = hear_both(after, honest, liar)
            return describe_ruling(after, honest, liar, [sum(counts) for counts in zip(begun, gone_on, strict=True)])
