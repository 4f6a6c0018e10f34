"""Whoever answered a referee has its signed receipt: a service that hides the answer, or the hearing, is convicted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import delete, select

from contracts.ledger import Ledger
from gradmarket.market.errors import NotFound, SignatureRefused
from gradmarket.market.features.disputes.questions import HEARING_S
from gradmarket.market.features.disputes.receipts import (
    OTHER_JOB,
    UNSIGNED,
    JudgedReceipt,
    KeptReceipt,
    ReceiptScope,
    judge_receipt,
    receipt_struct,
)
from gradmarket.market.features.disputes.transcript import (
    find_transcript_faults,
    terms_of,
)
from gradmarket.market.features.log.job_log import RESTORED, encode_restart
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import Hash, TaskState
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.hearing_messages import SILENCE, PublishedHearing, SignedRuling, build_ruling
from gradmarket.market.wire.log_proofs import LeafKind, PublishedRestart
from gradmarket.public_audit.features.disputes import prove_disputes
from gradmarket.public_audit.job_proof import ClauseResult, JobRecord
from requester.features.disputes import hearing_exchange
from requester.features.disputes.hearing_rows import TaskHearing
from requester.features.log import leaf_rows
from requester.features.log.leaf_rows import LogLeaf
from requester.features.records.evidence_routes import evidence_of
from requester.moves import judging
from requester.store import in_hand, jobs
from requester.store.tables import Job, Task
from tests.databases import new_sqlite
from tests.features.disputes.test_hearings import asked_of, bring, root_of, sign_answer, split, traced
from tests.requester.conftest import open_markets
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]


def say(market: MarketFixture, worker: SimWorker, body: bytes) -> KeptReceipt:
    """Answers the open question, and keeps its receipt."""
    asked, said = asked_of(market, worker), sign_answer(market, worker, body)
    door = hearing_exchange.admit_answer(market.context, worker.address, said)
    receipt = hearing_exchange.store_answer(market.context, worker.address, door, said, body, len(body))
    task = market.task()
    fields: dict[str, Any] = {
        "job": task.offer.job,
        "task": task.id,
        "offer": task.offer_digest,
        **receipt.model_dump(),
    }
    return KeptReceipt(**fields, sides=asked.sides, roots=asked.roots, side=said.side, said=said.said)


@dataclass(frozen=True)
class Heard:
    """The honest side answered, the liar did not, and the job went to its end; the receipts that both got."""

    market: MarketFixture
    evidence: PublishedEvidence
    honest: KeptReceipt
    liar: KeptReceipt


@pytest.fixture(scope="module")
def heard(market_ledger: Ledger) -> Iterator[Heard]:
    """Tests only read it."""
    with open_markets(market_ledger, new_sqlite) as new_market:
        market = traced(new_market)
        honest, liar = split(market)
        own, others = say(market, honest, root_of(honest, 3)), say(market, liar, b"nonsense")
        market.drive()
        market.play()
        yield Heard(market, show(market), own, others)


def show(market: MarketFixture, task: int = -1) -> PublishedEvidence:
    with market.context.reading() as reader:
        shown = evidence_of(reader, reader.get_one(Task, market.tasks()[task].id))
    return PublishedEvidence.model_validate(shown.model_dump(mode="json"))


def judge(market: MarketFixture, receipt: KeptReceipt, shown: PublishedEvidence | None) -> JudgedReceipt:
    scope = ReceiptScope(market.context.domain, market.context.signer_address, market.task().offer.job)
    return judge_receipt(scope, receipt, shown)


def sign(market: MarketFixture, receipt: KeptReceipt) -> KeptReceipt:
    """A receipt that the service signs anew, with other words."""
    return receipt.model_copy(update={"signature": market.context.sign(receipt_struct(receipt))})


def rule_silence(market: MarketFixture, held: PublishedHearing, side: str) -> PublishedHearing:
    """What a service would show that drops the last answer of a side, and rules that it was silent."""
    (*before, last) = held.questions
    wrong = tuple(each for each in held.sides if each == side)
    context, offer = market.context, market.task().offer_digest
    dispute = terms_of(context.domain, offer, held).dispute
    signature = context.sign(build_ruling(dispute, held.sides, frozenset(wrong), None, SILENCE))
    left = last.model_copy(update={"answers": tuple(one for one in last.answers if one.side != side)})
    ruling = SignedRuling(wrong=wrong, leaf=None, why=SILENCE, signature=signature)
    return held.model_copy(update={"questions": (*before, left), "ruling": ruling})


def prove(
    market: MarketFixture,
    evidence: PublishedEvidence | None,
    *receipts: KeptReceipt,
    logged: bool = True,
    restored_at: int | None = None,
    kept: int = 0,
    own_node: bool = True,
) -> ClauseResult:
    """Audits what is shown, or nothing; the service leaves out the numbers of answers where they are not `logged`, and
    admits a restore from a copy with the first `kept` leaves."""
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        publication = jobs.load_publication(job)
        leaf_rows.append_leaves(work, job)
        rows = work.session.scalars(select(LogLeaf).where(LogLeaf.job_id == job.id).order_by(LogLeaf.number)).all()
        leaves = [row.hash for row in rows if logged or row.kind != LeafKind.ANSWERS]
    chain_job, restarts = market.task().offer.job, list[PublishedRestart]()
    if restored_at is not None:
        copy = LogHead(chain_job, kept, Hash(GrowingTree(leaves[:kept]).compute_root()))
        leaves = [*leaves[:kept], Hash(hash_leaf(encode_restart(RESTORED, copy, restored_at)))]
        restarts.append(PublishedRestart(number=kept, batch=RESTORED, at=restored_at))
    log = SimpleNamespace(leaves=leaves, head=SimpleNamespace(restarts=restarts), carried={})
    opened = SimpleNamespace(signer=market.context.signer_address, job=chain_job)
    domain, told = market.context.domain, {} if evidence is None else {market.task().id: evidence}
    record = SimpleNamespace(evidence=told, domain=domain, opened=opened, publication=publication, log=log)
    (result,) = prove_disputes(cast(JobRecord, record), None, receipts, own_node=own_node)
    return result


@pytest.mark.parametrize("logged", [True, False])
def test_an_answer_that_a_service_hides_is_found_by_its_receipt_and_by_the_log(heard: Heard, logged: bool) -> None:
    market, evidence = heard.market, heard.evidence
    (held,) = evidence.hearings or ()
    assert prove(market, evidence, heard.honest, heard.liar).faults == ()
    for receipt in (
        heard.honest,
        heard.liar,
    ):  # also where the same side loses: what it answered is hidden all the same
        silenced = rule_silence(market, held, receipt.side)
        hidden = evidence.model_copy(update={"hearings": (silenced,)})
        signer = market.context.signer_address
        assert list(find_transcript_faults(market.context.domain, signer, receipt.offer, silenced)) == []
        by_log, by_receipt = (prove(market, hidden, *kept, logged=logged) for kept in ((), (receipt,)))
        assert ["the log has more answers" in fault.detail for fault in by_log.faults] == [True] * logged
        assert "whether 1 side was silent, as the service says and no receipt contradicts" in by_log.unseen
        assert f"the answer of {receipt.side} is hidden" in by_receipt.faults[-1].detail


def test_a_side_that_is_shown_its_answer_and_ruled_silent_is_contradicted_by_its_receipt(heard: Heard) -> None:
    market, evidence, honest = heard.market, heard.evidence, heard.honest
    (held,) = evidence.hearings or ()
    ruled = held.model_copy(update={"ruling": rule_silence(market, held, honest.side).ruling})
    assert "lost by silence" in judge(market, honest, evidence.model_copy(update={"hearings": (ruled,)})).fault
    assert judge(market, honest, evidence) == ("", "")


def test_a_hearing_that_a_service_hides_is_found_by_its_leaf_and_by_each_receipt(heard: Heard) -> None:
    hidden = heard.evidence.model_copy(update={"hearings": None})
    by_leaf, by_receipt = prove(heard.market, hidden, heard.honest).faults
    assert "the log has a hearing of" in by_leaf.detail
    assert "is hidden" in by_receipt.detail


def test_an_answer_that_is_brought_again_gets_the_same_receipt_and_another_answer_gets_none(
    new_market: NewMarket,
) -> None:
    """The first response was lost: without a receipt, the answer could be hidden as silence."""
    market = traced(new_market)
    honest, liar = split(market)
    body = root_of(honest, 3)
    said, other = sign_answer(market, honest, body), sign_answer(market, honest, b"another")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    first = bring(market, honest, said, len(body), receive)
    market.clock.now += 1.0
    assert bring(market, honest, said, len(body), receive) == first
    say(market, liar, root_of(liar, 3))
    market.drive()
    assert asked_of(market, honest).number == 1
    assert bring(market, honest, said, len(body), receive) == first
    forged = said.model_copy(update={"signature": sign_answer(market, liar, b"").signature})
    for refused in (other, forged):
        with pytest.raises((NotFound, SignatureRefused)):
            bring(market, honest, refused, len(body), receive)


def test_sides_that_got_less_time_than_their_offer_gives_are_found(heard: Heard) -> None:
    (held,) = heard.evidence.hearings or ()
    hurried = heard.evidence.model_copy(update={"hearings": (held.model_copy(update={"answer_s": 1}),)})
    assert "its sides had 1 s for an answer" in prove(heard.market, hurried).faults[0].detail


@pytest.mark.parametrize(("change", "why"), [("at", "was taken at 1: its receipt"), ("run", "is hidden")])
def test_a_receipt_counts_for_one_hearing_and_one_time(heard: Heard, change: str, why: str) -> None:
    """A side's clock rests on the signed time, and no later hearing of the same answers covers a hidden one."""
    market, evidence, receipt = heard.market, heard.evidence, heard.honest
    assert judge(market, receipt, evidence) == ("", "")
    other = sign(market, receipt.model_copy(update={change: 1}))
    assert why in judge(market, other, evidence).fault


@pytest.mark.parametrize("change", ["signature", "said", "roots", "run", "at", "job"])
def test_a_receipt_that_nobody_signed_convicts_nobody(heard: Heard, change: str) -> None:
    market, evidence, receipt = heard.market, heard.evidence, heard.honest
    domain = market.context.domain
    other = {"said": Hash(bytes(32)), "roots": receipt.roots[::-1], "run": 1, "at": 1, "job": 7}
    forged = receipt.model_copy(update={change: other.get(change, b"")})
    forged = forged.model_copy(
        update={"signature": sign_digest(market.workers[0].key, digest_struct(domain, receipt_struct(forged)))}
    )
    for shown in (evidence, None):
        assert judge(market, forged, shown) == ("", UNSIGNED)
    assert judge(market, receipt, None).fault
    assert f"1 receipt {UNSIGNED}" in prove(market, evidence, forged).unseen
    assert prove(market, evidence, forged).faults == ()


def test_a_task_that_a_service_leaves_out_is_a_fault_by_each_receipt_of_its_job(heard: Heard) -> None:
    market, evidence, receipt = heard.market, heard.evidence, heard.honest
    assert prove(market, evidence, receipt).faults == ()
    (fault,) = prove(market, None, receipt).faults
    assert fault.about == f"task {receipt.task}"
    assert f"no task of offer 0x{receipt.offer.hex()} is shown" in fault.detail
    elsewhere = prove(market, evidence, sign(market, receipt.model_copy(update={"job": receipt.job + 1})))
    assert elsewhere.faults == ()
    assert f"1 receipt {OTHER_JOB}" in elsewhere.unseen


@pytest.mark.parametrize(("later_s", "ended", "excused"), [(0, False, True), (-3600, False, False), (0, True, False)])
def test_answers_before_a_restore_that_the_log_admits_may_be_lost_but_for_those_of_hearings_that_it_has(
    heard: Heard, later_s: int, ended: bool, excused: bool
) -> None:
    market, receipt = heard.market, heard.honest
    with market.context.begin() as work:
        leaf_rows.append_leaves(work, work.get_one(Job, market.job))
        whole = leaf_rows.count_leaves(work, market.job)
    kept, at = whole if ended else 1, receipt.at + later_s
    found = prove(market, None, receipt, restored_at=at, kept=kept)
    assert (found.faults == ()) is excused
    note = f"1 receipt from before a restore at Unix time {at}, as leaf {kept} of the log admits"
    assert any(note in unseen for unseen in found.unseen) is excused


@pytest.mark.parametrize("began", [True, False])
def test_a_failed_split_vote_without_a_hearing_differs_from_a_hidden_hearing(
    new_market: NewMarket, began: bool
) -> None:
    market = traced(new_market)
    split(market)
    with market.context.begin() as work:
        hand = in_hand.lock_task_if_free(work, market.task().id)
        assert hand is not None
        judging.fail_task(market.context, work, hand, "so", market.clock.now)
        if not began:
            work.session.execute(delete(TaskHearing))
    market.lapse(HEARING_S + 1.0)
    market.worker()
    market.worker()
    market.play()
    shown = show(market, 0)
    assert shown.state is TaskState.FAILED
    hidden = prove(market, shown.model_copy(update={"hearings": None}))
    assert [fault.detail.split(" of ")[0] for fault in hidden.faults] == ["the log has a hearing"] * began
    unheard = "why nobody heard 1 split vote of failed tasks: the log has no hearing of them"
    assert (unheard in hidden.unseen) is not began


@pytest.mark.parametrize("own_node", [True, False])
def test_a_referee_that_only_the_market_s_own_node_names_is_said_to_be_unseen(heard: Heard, own_node: bool) -> None:
    proven = prove(heard.market, heard.evidence, heard.honest, own_node=own_node)
    signer = heard.market.context.signer_address
    assert (
        f"whether {signer} is the job's referee: the market's own node says so (--rpc)" in proven.unseen
    ) is not own_node
    assert proven.faults == ()
