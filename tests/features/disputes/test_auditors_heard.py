"""A job's referee hears auditors of a panel that differ: who loses is barred, and silence loses in time."""

import asyncio
import threading
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.features.disputes.questions import (
    HEARING_S,
    OVER,
    DisputeAnswer,
    Question,
    digest_reply,
    join_parts,
)
from gradmarket.market.features.disputes.receipts import KeptReceipt
from gradmarket.market.features.disputes.transcript import find_transcript_faults
from gradmarket.market.features.log.merkle import MerkleTree
from gradmarket.market.job import JobSpec
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import AuditState, PanelSeatState
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.hearing_messages import AuditorQuestions, AuditorStatement, PublishedHearing, name_dispute
from gradmarket.public_audit.panel_proof import find_panel_faults
from graphdoc.tracing.packed import digest_plain_bytes
from requester.features import disputes
from requester.features.auditors import panel_exchange
from requester.features.audits.audit_tables import Audit
from requester.features.disputes import hearing_exchange
from requester.features.disputes.hearing_rows import TaskHearing
from requester.features.records.evidence_routes import evidence_of
from requester.notifier import Notifier, worker_topic
from requester.store.tables import Task
from tests.features.auditors.test_panels import LIE, TWO, NewMarket, panel, seats, sit
from tests.features.disputes.test_hearings import ALONE, VOTES, traced
from tests.kit.behaviour import HONEST
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_for
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import MarketFixture


def differ(market: MarketFixture) -> list[SimAuditor]:
    """The only task is accepted, and two auditors have opened different answers to it."""
    auditors = two_auditors(market)
    sit(*auditors)
    return auditors


def two_auditors(market: MarketFixture) -> list[SimAuditor]:
    for _ in range(2):
        market.worker(HONEST)
    market.until(lambda: audits_of(market))
    return panel(market, None, LIE)


def answer_as_auditor(
    market: MarketFixture, auditor: SimAuditor, operator: str | None = None, key: PrivateKey | None = None
) -> KeptReceipt:
    """Answers the first question, with checkpoints that are nonsense but for the last."""
    signer, caller = auditor.sealing.signer, operator or auditor.operator
    (asked,) = hearing_exchange.list_auditor_questions(market.context, auditor.operator, signer).questions
    own = dict(zip(asked.sides, asked.roots, strict=True))[signer]
    leaves = [ALONE, ALONE, digest_plain_bytes(own)]
    tree = MerkleTree(leaves)
    body = join_parts([tree.root, leaves[-1], b"".join(tree.path(2))])
    dispute = name_dispute(market.task().offer_digest, asked.sides, asked.roots)
    question = Question(asked.asked, asked.level, asked.place).digest(dispute, asked.number)
    struct = DisputeAnswer(dispute, signer, asked.number, question, digest_reply(body))
    signature = sign_digest(key or auditor.sealing.key, digest_struct(market.context.domain, struct))
    fields: dict[str, Any] = {"side": signer, "number": asked.number, "said": digest_reply(body)}
    said = AuditorStatement(**fields, signature=signature, task=asked.task)
    door = hearing_exchange.admit_answer(market.context, caller, said)
    receipt = hearing_exchange.store_answer(market.context, caller, door, said, body, len(body)).model_dump()
    task = market.task()
    named: dict[str, Any] = {"job": task.offer.job, "task": task.id, "offer": task.offer_digest, "side": signer}
    return KeptReceipt(**named, **receipt, sides=asked.sides, roots=asked.roots, said=said.said)


def test_a_silent_auditor_loses_its_standing_and_the_answer_that_stands_decides(new_market: NewMarket) -> None:
    market = traced(new_market, audit=TWO)
    ann, bea = differ(market)
    assert set(seats(market).values()) == {PanelSeatState.HEARD}
    assert hearing_exchange.list_auditor_questions(market.context, "bea", ann.sealing.signer).questions == ()
    with pytest.raises(NotFound):
        answer_as_auditor(market, ann, operator="bea")
    with pytest.raises(Refused):
        answer_as_auditor(market, ann, key=bea.sealing.key)
    answer_as_auditor(market, ann)
    market.lapse(HEARING_S + 1.0)
    market.drive()
    (told,) = market.events("heard")
    assert told["wrong"] == [bea.sealing.signer]
    assert seats(market) == {"ann": PanelSeatState.OPENED, "bea": PanelSeatState.WRONG}
    assert [one["reason"] for one in market.events("auditor_barred")] == [panel_exchange.LOST]
    (audit,) = audits_of(market)
    assert (audit.state, audit.runs) == (AuditState.PASSED, 2), "who was barred computed it too"
    assert audit.root is not None
    assert audit.root == market.task().root


def test_an_auditor_that_waits_hears_of_a_question_at_once_and_no_worker_is_woken_by_it(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disputes, "LOOK_S", 2 * PATIENCE_S)
    market = traced(new_market, audit=TWO)
    ann, bea = two_auditors(market)
    signer, waits = ann.sealing.signer, threading.Event()

    def load() -> AuditorQuestions:
        waits.set()
        return hearing_exchange.list_auditor_questions(market.context, "ann", signer)

    async def wait_beside_the_market() -> AuditorQuestions:
        asked = asyncio.create_task(disputes._wait_for_question(market.context, signer, load, 2 * PATIENCE_S))
        await asyncio.to_thread(wait_for, waits)
        await asyncio.to_thread(sit, ann, bea)
        return await asyncio.wait_for(asked, PATIENCE_S)

    with market.context.notifier.listen(["first"]) as connected:  # a new connection of a database wakes all listeners
        if type(market.context.notifier) is not Notifier:
            wait_for(connected)
    with market.context.notifier.listen([worker_topic(signer)]) as woken:
        (asked,) = asyncio.run(wait_beside_the_market()).questions
        assert asked.task == market.task().id
        assert not woken.is_set()


@FULL
def test_the_liar_is_paid_no_belief_where_the_honest_auditor_is_the_silent_one(new_market: NewMarket) -> None:
    """As between workers: silence loses, so an auditor that opened an answer stays there to stand by it."""
    market = traced(new_market, audit=TWO)
    ann, bea = differ(market)
    answer_as_auditor(market, bea)
    market.lapse(HEARING_S + 1.0)
    market.drive()
    (told,) = market.events("heard")
    assert told["wrong"] == [ann.sealing.signer]


@FULL
def test_auditors_enough_of_whom_agree_are_heard_by_nobody(new_market: NewMarket) -> None:
    """A liar would have them answer a referee, or lose by silence."""
    market = traced(new_market, audit={"probability": 1.0, "auditors": {"count": 3, "agree": 2}})
    for _ in range(2):
        market.worker(HONEST)
    market.until(lambda: audits_of(market))
    sit(*panel(market, None, None, LIE))
    assert not market.events("heard")
    assert seats(market) == {
        "ann": PanelSeatState.OPENED,
        "bea": PanelSeatState.OPENED,
        "cem": PanelSeatState.WRONG,
    }
    assert [one["reason"] for one in market.events("auditor_barred")] == [panel_exchange.WRONG]
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]


@FULL
def test_where_its_own_child_fails_nobody_is_wrong_and_a_further_auditor_is_asked(new_market: NewMarket) -> None:
    market = new_market(**VOTES, audit=TWO)
    differ(market)
    assert not market.events("heard"), "its audit is still under way"
    assert not market.events("auditor_barred")
    assert set(seats(market).values()) == {PanelSeatState.OPENED}
    (third,) = panel(market, None, None, None)[2:]
    sit(third)
    (told,) = market.events("heard")
    assert (told["wrong"], told["task"]) == ([], market.task().id)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert seats(market)["bea"] == PanelSeatState.WRONG


def test_an_audit_that_is_over_meanwhile_leaves_no_hearing_open_and_nobody_wrong(new_market: NewMarket) -> None:
    market = traced(new_market, audit=TWO)
    ann, _ = differ(market)
    answer_as_auditor(market, ann)
    with market.context.begin() as work:
        work.get_one(Audit, market.task().id).state = AuditState.LAPSED
    market.lapse(HEARING_S + 1.0)
    market.drive()
    (told,) = market.events("heard")
    assert (told["wrong"], told["reason"]) == ([], OVER)
    assert [row.due_at for row in market.all(TaskHearing)] == [None]
    assert not market.events("auditor_barred")


def test_the_evidence_proves_what_was_heard_of_a_panel_and_each_lie_about_it_is_found(new_market: NewMarket) -> None:
    market = traced(new_market, audit=TWO)
    ann, bea = differ(market)
    answer_as_auditor(market, ann)
    market.lapse(HEARING_S + 1.0)
    market.drive()
    with market.context.reading() as reader:
        shown = PublishedEvidence.model_validate(
            evidence_of(reader, reader.get_one(Task, market.task().id)).model_dump(mode="json")
        )
    (heard,), audit, asked = shown.hearings or (), shown.audit, JobSpec.model_validate(market.the_job().spec).panel
    assert audit is not None
    assert asked is not None
    assert heard.ruling is not None
    domain, offer, signer = market.context.domain, shown.offer_digest, market.context.signer_address

    def faults(hearing: PublishedHearing) -> list[str]:
        panel_faults = find_panel_faults(domain, offer, audit, asked, [hearing])
        return [*panel_faults, *find_transcript_faults(domain, signer, offer, hearing)]

    assert faults(heard) == []
    assert list(find_panel_faults(domain, offer, audit, asked)) != []
    turned = heard.ruling.model_copy(update={"wrong": (ann.sealing.signer,)})
    unsigned = heard.questions[0].model_copy(
        update={"answers": [one.model_copy(update={"side": bea.sealing.signer}) for one in heard.questions[0].answers]}
    )
    for change in ({"ruling": turned}, {"questions": (unsigned,)}, {"roots": heard.roots[::-1]}, {"run": None}):
        assert faults(heard.model_copy(update=change)), change
