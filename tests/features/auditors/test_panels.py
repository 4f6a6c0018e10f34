"""Panels: auditors of separate operators seal before anybody opens, and so many have to agree."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from gradmarket import auditor as auditor_module
from gradmarket.client import RequesterClient
from gradmarket.commands import plan
from gradmarket.market.errors import Conflict, Refused
from gradmarket.market.features import auditors
from gradmarket.market.features.auditors import AuditSeal, PanelMember
from gradmarket.market.features.audits import class_checks
from gradmarket.market.features.log.job_log import encode_seal
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import AuditPanel, AuditSpec
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import AuditState, Digest, Hash, JobState, PanelSeatState, Role, TaskState
from gradmarket.market.wire.audit_messages import AuditAnswer, PanelOpening, PanelSeal
from gradmarket.market.wire.evidence import PublishedAudit, PublishedEvidence
from gradmarket.market.wire.log_proofs import LeafKind
from gradmarket.market.wire.poll import hash_of
from gradmarket.public_audit.panel_proof import find_panel_faults
from gradmarket.sealing import OpenedAnswers
from requester.app import create_app
from requester.features import explanations
from requester.features.auditors import panel_exchange
from requester.features.auditors.panel_rows import PanelSeat
from requester.features.audits import audit_draws, audit_rows, auditor_claims, renew_waits
from requester.features.audits.audit_views import view_audit
from requester.features.audits.auditor_claims import Claimed
from requester.features.log import leaf_rows
from requester.features.records.evidence_routes import evidence_of
from requester.store import identities, stored_times
from requester.store.tables import Job, Task
from tests.features.audits.test_auditor_brings import FixtureAuditor
from tests.features.test_served_fields import SPEC
from tests.kit.behaviour import HONEST, Behaviour, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, DEADLINES, PRICE, MarketFixture
from tests.requester.upload_door import served
from worker.features.disputes.kept_receipts import load_receipts

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)
LEASE_S = float(DEADLINES["lease_s"])
TWO = {"probability": 1.0, "auditors": {"count": 2, "agree": 2}}
OTHER = "00000000000000bb"
THREE = {"probability": 1.0, "auditors": {"count": 3, "agree": 3}}


def panel(market: MarketFixture, *behaviours: Behaviour | None) -> list[SimAuditor]:
    names = ("ann", "bea", "cem", "dag", "eva", "fay")
    return [
        SimAuditor(market, how or HONEST, name=f"{name}'s machine", operator=name)
        for name, how in zip(names, behaviours, strict=False)
    ]


def due(new_market: NewMarket, *workers: Behaviour | None, audit: dict[str, Any] = TWO) -> MarketFixture:
    """A market whose only task is accepted, and is to be audited."""
    market = new_market(audit=audit)
    for how in workers or (None, None, None):
        market.worker(how or HONEST)
    market.until(lambda: audits_of(market))
    return market


def claimed(auditor: SimAuditor) -> Claimed:
    work = auditor.claim()
    assert work is not None
    return work


def sit(*auditors: SimAuditor, passes: int = 6) -> None:
    """They take what their panels have for them, until nothing is left."""
    for _ in range(passes):
        for auditor in auditors:
            while (work := auditor.claim()) is not None:
                auditor.sit(work)
        auditors[0].market.drive()


def seats(market: MarketFixture) -> dict[str, PanelSeatState]:
    return {seat.operator: seat.state for seat in market.all(PanelSeat)}


def told(market: MarketFixture) -> dict[str, Any]:
    with TestClient(create_app(market.context, nullcontext)) as client:
        trust = client.get(f"/v1/jobs/{market.job}/trust").json()
        audits = client.get(f"/v1/jobs/{market.job}/audits").json()["items"]
    return {"trust": trust["panels"], "audits": audits}


def test_two_honest_auditors_seal_then_open_and_the_audit_passes(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea = panel(market, None, None)
    first = claimed(ann)
    assert first.panel == "seal"
    ann.sit(first)
    assert ann.claim() is None, "nothing is opened before all have sealed"
    with pytest.raises(Conflict, match="not all auditors"):
        panel_exchange.record_opening(market.context, first.task, "ann", ann.opened(first))
    bea.sit(claimed(bea))
    assert [claimed(one).panel for one in (ann, bea)] == ["open", "open"]
    assert [audit.state for audit in audits_of(market)] == [AuditState.DUE]
    sit(ann, bea)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    market.play()
    assert market.state() == JobState.FINISHED
    shown = told(market)
    counts = {"decided": 1, "disagreed": 0, "wrong": 0, "withheld": 0, "barred": 0}
    assert shown["trust"] == {"auditors": 2, "agree": 2, **counts}
    (audit,) = shown["audits"]
    domain, offer = market.context.domain, market.task().offer_digest
    for seat in audit["panel"]:
        fields = {name: seat[name] for name in ("signer", "sealed", "signature", "run")}
        sealed = PanelSeal.model_validate({"auditor": "x", **fields})
        assert auditors.is_seal_signed(domain, offer, sealed)
        opened = PanelOpening(auditor="x", run=seat["run"], root=seat["root"], salt=seat["salt"])
        assert auditors.is_seal_opened(offer, sealed.signer, sealed.sealed, opened)
    check_books(market)


@FULL
def test_two_auditors_convict_a_quorum_of_liars_without_a_second_run(new_market: NewMarket) -> None:
    market = due(new_market, LIE, LIE, None)
    sit(*panel(market, None, None))
    (event,) = market.events("audit_failed")
    assert (len(event["workers"]), len(event["vindicated"])) == (2, 1)


def test_one_operator_has_one_seat_and_no_lone_auditor_decides(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea = panel(market, None, None)
    twin = SimAuditor(market, name="ann's other machine", operator="ann")
    work = claimed(ann)
    assert twin.claim() is None
    alone = AuditAnswer(auditor=ann.name, run=work.run, root=ann.find(work), seconds=1.0)
    with pytest.raises(Conflict):
        auditor_claims.record_audit_answer(market.context, work.task, alone)
    with pytest.raises(Conflict, match="no seat"):
        panel_exchange.record_seal(market.context, work.task, "ann", twin.sealed(work))
    ann.sit(work)
    bea.sealing = replace(ann.sealing, auditor=bea.name)
    with pytest.raises(Conflict, match="signs for another operator"):
        bea.sit(claimed(bea))
    other = bea.sealed(claimed(bea)).model_dump(mode="json") | {"signer": bea.sealing.signer.lower()}
    with pytest.raises(Conflict, match="signs for another operator"):
        panel_exchange.record_seal(market.context, work.task, "bea", PanelSeal.model_validate(other))
    assert "a panel of auditors" in market.why_waiting()


def test_a_newcomer_s_answer_that_a_lone_auditor_keeps_from_being_settled_is_explained(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, replication={"name": "proven"})
    ann, _bea = panel(market, None, None)
    ann.claim()
    market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    ann.sit(claimed(ann))
    assert not market.why_waiting(), "auditors take their time"
    market.lapse(explanations.IDLE_S + 1.0)
    assert market.why_waiting() == f"answers wait for {panel_exchange.AWAITED}"
    assert "lapses" in panel_exchange.AWAITED


def test_a_panel_that_no_further_auditor_joins_lapses_and_its_task_is_voted_again(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, replication={"name": "proven"})
    ann, _bea = panel(market, None, None)
    ann.claim()
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: market.task().state == TaskState.REFERRED)
    ann.sit(claimed(ann))
    for _ in range(int(class_checks.UNHEARD_S / 20.0)):
        assert [audit.state for audit in audits_of(market)] == [AuditState.DUE]
        assert ann.claim() is None, "it keeps asking, and alone it decides nothing"
        market.lapse(20.0)
    for _ in range(2):
        ann.claim()
        market.lapse(20.0)
    assert [audit.state for audit in audits_of(market)] == [AuditState.LAPSED]
    assert market.tasks()[0].reason == "no panel of auditors of separate operators decided about it"
    market.until(lambda: market.state() == JobState.FINISHED)
    assert market.earned() == {worker.address: PRICE for worker in workers}
    check_books(market)


def test_a_panel_whose_auditors_fill_others_first_does_not_lapse(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, replication={"name": "proven"}, tasks_per_round=2)
    ann, bea = panel(market, None, None)
    ann.claim()
    for _ in range(2):
        market.worker()
    market.until(lambda: [task.state for task in market.tasks()] == [TaskState.REFERRED] * 2)
    for _ in range(2):
        ann.sit(claimed(ann))
    market.lapse(class_checks.UNHEARD_S - 5.0)
    bea.sit(claimed(bea))
    market.clock.now += LEASE_S - 1.0
    bea.claim()
    market.drive()
    assert [audit.state for audit in audits_of(market)] == [AuditState.DUE] * 2
    sit(ann, bea)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED] * 2


def test_a_job_whose_panel_has_too_few_tokens_is_voted_at_once_and_explained(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, replication={"name": "proven"})
    (ann,) = panel(market, None)
    ann.claim()
    assert describe_checks(market).startswith("No panel can check it: its panels take auditors of 2 separate operators")
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: market.state() == JobState.FINISHED)
    assert market.earned() == {worker.address: PRICE for worker in workers}
    assert audits_of(market) == []


def test_a_job_whose_workers_a_short_panel_of_another_holds_says_so(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, replication={"name": "proven"})
    ann, _bea = panel(market, None, None)
    ann.claim()
    worker = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    ann.sit(claimed(ann))
    market.also(OTHER, 8, replication={"name": "proven"})
    market.lapse(explanations.IDLE_S + 1.0)
    ann.claim()
    worker.capacity = 0
    worker.request_work()
    assert describe_wait(market, OTHER) == (
        "the workers here hold unpaid answers of test, and take no more until they are paid: answers wait for "
        + panel_exchange.AWAITED
    )
    worker.capacity = 2
    worker.request_work()
    assert "unpaid" not in describe_wait(market, OTHER)


def describe_wait(market: MarketFixture, job: str) -> str:
    with market.reading() as reader:
        return explanations.why_waiting(reader, reader.get_one(Job, job), market.clock())


def test_a_job_says_who_checks_it_while_its_panel_may_be_filled(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, replication={"name": "proven"})
    ann, _bea = panel(market, None, None)
    ann.claim()
    said = describe_checks(market)
    assert said == f"2 auditors of separate operators check it; one at least of class {CLASS} is there."


def describe_checks(market: MarketFixture) -> str:
    with market.reading() as reader:
        return explanations.describe_checks(reader, reader.get_one(Job, market.job), market.clock())


def test_a_liar_in_a_panel_is_outvoted_by_further_auditors_and_barred(new_market: NewMarket) -> None:
    market = new_market(rounds=2, audit=TWO)
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: audits_of(market))
    ann, bea, cem = panel(market, None, LIE, None)
    sit(ann, bea)
    assert [audit.state for audit in audits_of(market)] == [AuditState.DUE], "one answer each decides nothing"
    sit(cem)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert seats(market)["bea"] == PanelSeatState.WRONG
    (event,) = market.events("auditor_barred")
    assert (event["auditor"], event["reason"]) == (bea.sealing.signer, panel_exchange.WRONG)
    market.until(lambda: len(audits_of(market)) == 2)
    assert bea.claim() is None, "it audits no more in the job"
    sit(ann, cem)
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: 2 * PRICE for worker in workers}
    counts = {"decided": 2, "disagreed": 1, "wrong": 1, "withheld": 0, "barred": 1}
    assert told(market)["trust"] == {"auditors": 2, "agree": 2, **counts}


def test_a_copied_seal_is_worth_nothing(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea = panel(market, None, None)
    work = claimed(ann)
    seal = ann.sealed(work)
    ann.sit(work)
    copied = claimed(bea)
    with pytest.raises(Conflict, match="signs for another operator"):
        panel_exchange.record_seal(market.context, work.task, "bea", seal.model_copy(update={"auditor": bea.name}))
    forged = seal.model_copy(update={"auditor": bea.name, "signer": bea.sealing.signer})
    with pytest.raises(Refused, match="did not sign"):
        panel_exchange.record_seal(market.context, work.task, "bea", forged)
    signer = bea.sealing.signer
    struct = AuditSeal(market.task().offer_digest, signer, copied.run, seal.sealed)
    signature = sign_digest(bea.sealing.key, digest_struct(market.context.domain, struct))
    panel_exchange.record_seal(market.context, work.task, "bea", forged.model_copy(update={"signature": signature}))
    opened = ann.opened(claimed(ann))
    ann.sit(claimed(ann))
    with pytest.raises(Refused, match="do not open"):
        panel_exchange.record_opening(market.context, work.task, "bea", opened.model_copy(update={"auditor": bea.name}))


@FULL
def test_an_auditor_that_sealed_an_unknown_answer_cannot_open_it(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea, cem = panel(market, None, None, None)
    ann.sit(claimed(ann))
    work = claimed(bea)
    domain = market.context.domain
    blank = bea.sealing.seal(domain, work.offer, work.run, Digest("blake3:" + "0" * 64))
    panel_exchange.record_seal(market.context, work.task, "bea", blank)
    assert claimed(bea).panel == "open"
    with pytest.raises(Refused, match="do not open"):
        panel_exchange.record_opening(market.context, work.task, "bea", bea.opened(work))
    sit(ann)
    market.clock.now += LEASE_S + 1
    market.drive()
    assert seats(market)["bea"] == PanelSeatState.WITHHELD
    assert bea.claim() is None
    sit(cem)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]


def test_one_that_seals_and_stalls_is_replaced_and_barred(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea, cem = panel(market, None, None, None)
    ann.sit(claimed(ann))
    bea.sit(claimed(bea))
    sit(ann)
    assert cem.claim() is None, "its time is not over"
    market.clock.now += LEASE_S + 1
    market.drive()
    (event,) = market.events("auditor_barred")
    assert (event["auditor"], event["reason"]) == (bea.sealing.signer, panel_exchange.WITHHELD)
    sit(cem)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert told(market)["trust"]["withheld"] == 1


@FULL
def test_one_that_takes_a_seat_and_leaves_is_replaced_and_not_barred(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea, cem = panel(market, None, None, None)
    claimed(bea)
    market.clock.now += LEASE_S / 2
    auditor_claims.renew_held_audit(market.context, bea.asker, market.task().id)
    market.clock.now += LEASE_S / 2 + 1
    market.drive()
    assert seats(market) == {"bea": PanelSeatState.TAKEN}, "it said that it goes on computing"
    market.clock.now += LEASE_S
    market.drive()
    assert seats(market) == {"bea": PanelSeatState.LEFT}
    sit(ann, cem)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert not market.events("auditor_barred")


@FULL
def test_an_operator_that_left_its_seat_may_come_back_where_nobody_else_can(new_market: NewMarket) -> None:
    """Its machine was away for longer than a lease: without it a panel of two operators waited for a third forever."""
    market = due(new_market)
    ann, bea = panel(market, None, None)
    claimed(bea)
    market.clock.now += LEASE_S + 1
    market.drive()
    assert seats(market) == {"bea": PanelSeatState.LEFT}
    assert bea.claim() is None, "others come first"
    market.clock.now += LEASE_S
    sit(ann, bea)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert told(market)["trust"]["barred"] == 0


def test_seats_are_not_renewed_for_an_hour_longer_where_the_clock_was_ahead(new_market: NewMarket) -> None:
    market = due(new_market)
    (ann,) = panel(market, None)
    market.clock.now += 3600.0
    claimed(ann)
    market.clock.now -= 3600.0
    with market.context.begin() as work:
        assert stored_times.bring_back(work, market.clock()) > 0
    (seat,) = market.all(PanelSeat)
    assert seat.claimed_at == market.clock()
    assert seat.claimed_until == market.clock() + LEASE_S


@FULL
def test_colluding_auditors_below_the_threshold_convict_nobody(new_market: NewMarket) -> None:
    market = due(new_market, audit=THREE)
    ann, bea, cem, dag, eva = panel(market, LIE, LIE, None, None, None)
    sit(ann, bea, cem)
    assert [audit.state for audit in audits_of(market)] == [AuditState.DUE]
    sit(dag, eva)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert [seats(market)[one] for one in ("ann", "bea")] == [PanelSeatState.WRONG] * 2
    assert not market.events("audit_failed")


@FULL
def test_a_panel_that_never_agrees_ends_and_its_task_is_done_again(new_market: NewMarket) -> None:
    market = due(new_market)
    lies = [SimAuditor(market, scaled(2.0 + one), name="m", operator=f"liar {one}") for one in range(8)]
    for one in range(8):
        sit(*lies[: one + 1], passes=2)
    assert [audit.state for audit in audits_of(market)] == [AuditState.LAPSED]
    assert market.tasks()[0].state == TaskState.REVOKED
    assert not market.events("audit_failed"), "and nobody is convicted"


@pytest.mark.parametrize(
    ("asked", "why"), [({"count": 2, "agree": 3}, "cannot give 3"), ({"count": 4, "agree": 2}, "more than half")]
)
def test_a_threshold_that_cannot_decide_is_refused(asked: dict[str, int], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        AuditSpec.model_validate({"probability": 0.1, "auditors": asked})


def test_jobs_whose_answers_no_two_auditors_can_compare_are_refused(new_market: NewMarket) -> None:
    once = {"name": "fixed", "replicas": 2, "max_replicas": 2}
    with pytest.raises(ValidationError, match=r"audit\.auditors: each compares the bits of a whole task"):
        new_market(audit=TWO, verifier={"name": "tolerance"}, replication=once)


def test_the_rule_asks_no_more_than_it_needs() -> None:
    three = AuditPanel(count=3, agree=2)
    root, other = Digest("blake3:" + "1" * 64), Digest("blake3:" + "2" * 64)

    def members(*roots: Digest) -> list[PanelMember]:
        return [PanelMember(str(n), "m", PanelSeatState.OPENED, one) for n, one in enumerate(roots)]

    assert auditors.find_decided_root(members(root, other, root), 2) == root
    assert auditors.count_wanted(members(root, other), three) == 3
    assert auditors.count_wanted(members(root, other, Digest("blake3:" + "3" * 64)), three) == 4
    late = PanelMember("9", "m", PanelSeatState.SEALED, None, True)
    assert auditors.find_decided_root([*members(root, root), late], 2) is None, "its answer is waited for"
    gone = replace(late, state=PanelSeatState.WITHHELD)
    assert auditors.find_decided_root([*members(root, root), gone], 2) == root
    salt = auditors.derive_salt(b"k" * 32, Hash(bytes(32)), 0)
    assert salt != auditors.derive_salt(b"k" * 32, Hash(bytes(32)), 1)
    mine, yours = "0x" + "11" * 20, "0x" + "22" * 20
    seals = {auditors.seal_audit(Hash(bytes(32)), one, 0, salt, hash_of(root)) for one in (mine, yours)}  # type: ignore[arg-type]
    assert len(seals) == 2


@FULL
def test_auditors_with_tokens_of_their_own_sit_in_a_panel_over_http(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One is started anew before it opens: it computes the same once more, and needs nothing that it wrote.

    The seal that it keeps is the leaf of the job's log.
    """
    monkeypatch.setattr(auditor_module, "RENEWED_EVERY_S", 0.01)
    market = due(new_market)
    ann, bea = panel(market, None, None)
    with market.context.begin() as work:
        tokens = [identities.issue_token(work, Role.AUDIT, one.operator, None, market.clock()) for one in (ann, bea)]
    with served(market) as url, RequesterClient(url, tokens[0]) as one, RequesterClient(url, tokens[1]) as two:
        first, second = FixtureAuditor(one, ann), FixtureAuditor(two, bea)
        assert [made.panel for made in (first.turn(), second.turn()) if made is not None] == ["seal", "seal"]
        restarted = FixtureAuditor(two, bea, OpenedAnswers(tmp_path))
        assert [made.panel for made in (first.turn(), restarted.turn()) if made is not None] == ["open", "open"]
        assert (first.computed, restarted.computed) == (1, 1)
    market.drive()
    (kept,) = load_receipts(next((tmp_path / "receipts").iterdir())).seals
    with market.context.begin() as work:
        leaf_rows.append_leaves(work, work.get_one(Job, market.job))
        leaf = leaf_rows.find_leaf(work, market.job, LeafKind.SEAL, f"{kept.task}/{kept.run}/{kept.signer}")
    data = encode_seal(kept.offer, bea.sealing.signer, kept.run, kept.sealed, kept.signature)
    assert leaf is not None
    assert leaf.hash == hash_leaf(data)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]


def test_a_plan_names_what_a_panel_computes() -> None:
    spec = {
        **SPEC,
        "replication": {"name": "fixed"},
        "audit": {"probability": 0.1, "auditors": {"count": 3, "agree": 2}},
    }
    told = plan._build_costs(JobSpec.model_validate(spec))["auditors"]
    assert told.startswith("3 of separate operators compute an audited task, 2 have to agree: 0.3 computations a task")


def test_anybody_reads_from_the_ended_audit_who_found_what_and_a_forged_seat_proves_nothing(
    new_market: NewMarket,
) -> None:
    """Two auditors that differ may be heard by a referee: their seals prove what each stands for."""
    market = due(new_market)
    ann, bea, cem = panel(market, None, LIE, None)
    sit(ann, bea, cem)
    market.play()
    audit = PublishedAudit.model_validate(told(market)["audits"][0])
    domain, offer = market.context.domain, market.task().offer_digest
    found = dict(filter(None, (auditors.find_proven_answer(domain, offer, seat) for seat in audit.panel or ())))
    assert {one.sealing.signer for one in (ann, bea, cem)} == set(found)
    assert found[ann.sealing.signer] == found[cem.sealing.signer] == audit.root != found[bea.sealing.signer]
    for seat in audit.panel or ():
        for change in ({"root": "blake3:" + "0" * 64}, {"signer": "0x" + "11" * 20}, {"run": 7}, {"salt": None}):
            assert auditors.find_proven_answer(domain, offer, seat.model_copy(update=change)) is None


@FULL
def test_the_evidence_of_a_task_proves_what_its_panel_found(new_market: NewMarket) -> None:
    market = due(new_market)
    sit(*panel(market, HONEST, HONEST))
    market.play()
    with market.context.reading() as reader:
        shown = evidence_of(reader, reader.get_one(Task, market.task().id))
    evidence = PublishedEvidence.model_validate(shown.model_dump(mode="json"))
    spec = JobSpec.model_validate(market.the_job().spec)
    assert evidence.audit is not None
    assert spec.panel is not None
    assert [seat.root for seat in evidence.audit.panel or ()] == [evidence.root] * 2
    domain, offer = market.context.domain, evidence.offer_digest
    assert list(find_panel_faults(domain, offer, evidence.audit, spec.panel)) == []


def test_the_log_does_not_reveal_that_a_panel_audits_a_task_before_the_audit_is_over(new_market: NewMarket) -> None:
    """Anybody may ask the log for the leaf of a task, a run and an auditor."""
    market = due(new_market)
    ann, bea = panel(market, None, None)
    ann.sit(claimed(ann))
    about = f"{market.task().id}/0/{ann.sealing.signer}"

    def is_logged() -> bool:
        with market.context.begin() as work:
            leaf_rows.append_leaves(work, work.get_one(Job, market.job))
            return leaf_rows.find_leaf(work, market.job, LeafKind.SEAL, about) is not None

    assert not is_logged()
    for one in (bea, ann, bea):
        one.sit(claimed(one))
    assert [audit.state for audit in audits_of(market)] == [AuditState.ANSWERED]
    assert not is_logged()
    assert view_audit(audits_of(market)[0], published=True).root is None, "as in the evidence of an ended job"
    market.drive()
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert is_logged()
    assert view_audit(audits_of(market)[0], published=True).root == market.task().root


@pytest.mark.parametrize("seated", [0, 1])
def test_a_panel_has_time_to_be_filled_after_the_service_was_away(new_market: NewMarket, seated: int) -> None:
    market = new_market(audit=TWO, replication={"name": "proven"})
    ann, bea = panel(market, None, None)
    ann.claim()
    worker = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    for auditor in (ann, bea)[:seated]:
        auditor.sit(claimed(auditor))
    market.clock.now += 3600.0
    renew_waits(market.context)
    worker.request_work()
    market.drive()
    assert [audit.state for audit in audits_of(market)] == [AuditState.DUE], "no auditor had time to come back"
    market.clock.now += class_checks.GRACE_S + 1.0
    worker.request_work()
    market.drive()
    assert [audit.state for audit in audits_of(market)] == [AuditState.LAPSED], "none came"


def test_a_panel_that_is_opened_again_has_its_time_anew(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, rounds=4)
    for _ in range(3):
        market.worker()
    market.until(lambda: audits_of(market))
    sit(*panel(market, None, None))
    (passed,) = [audit.task_id for audit in audits_of(market) if audit.state == AuditState.PASSED]
    market.clock.now += 3600.0
    market.workers[0].request_work()
    with market.context.begin() as work:
        audit_draws.reopen_audit(work, work.get_one(Task, passed), market.clock())
    market.drive()
    assert [audit.state for audit in audits_of(market) if audit.task_id == passed] == [AuditState.DUE]
    with market.reading() as reader:
        waited_s = audit_rows.compute_longest_wait(reader, reader.get_one(Job, market.job), 0, market.clock())
    assert waited_s == 0.0, "an audit that passed an hour ago showed nothing of auditors since"
