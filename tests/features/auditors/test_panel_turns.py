"""Panels beside other work: nobody is barred for want of a turn, and no job keeps others waiting."""

import pytest

from gradmarket.market.features.audits import class_checks
from gradmarket.market.terms import AuditState, PanelSeatState
from requester.features.auditors import panel_exchange, panel_rows
from requester.features.auditors.panel_rows import PanelSeat
from requester.features.audits import auditor_claims, renew_waits
from tests.features.auditors.test_panels import LEASE_S, TWO, NewMarket, claimed, due, panel, seats, sit
from tests.kit.behaviour import HONEST
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import MarketFixture
from tests.requester.test_one_class import NAMES

OTHER = "0000000000000007"


def beside(new_market: NewMarket, audit: dict[str, object], tasks: int = 2) -> MarketFixture:
    """A market whose job has one audit by a panel due, and another job with `tasks` audits."""
    market = due(new_market)
    market.also(OTHER, 17, audit=audit, tasks_per_round=tasks)
    market.until(lambda: len(audits_of(market)) == 1 + tasks)
    return market


@FULL
def test_auditors_of_any_processor_sit_in_the_panel_of_a_reproducible_job(new_market: NewMarket) -> None:
    market = new_market(audit=TWO, arithmetic="reproducible")
    for name in NAMES:
        market.worker(determinism_class=name)
    market.until(lambda: audits_of(market))
    ann, bea = (SimAuditor(market, determinism_class=NAMES[n], name="m", operator=f"o{n}") for n in range(2))
    sit(ann, bea)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]


def join_panel(auditor: SimAuditor) -> None:
    """Computes what comes before, and seals its answer."""
    while (work := claimed(auditor)).panel is None:
        auditor.answer(work)
    auditor.sit(work)


@FULL
def test_seals_are_opened_before_whatever_else_is_due(new_market: NewMarket) -> None:
    market = beside(new_market, {"probability": 1.0}, tasks=3)
    auditors = panel(market, None, None)
    for one in auditors:
        join_panel(one)
    assert sum(audit.state == AuditState.DUE for audit in audits_of(market)) > 1
    assert [claimed(one).panel for one in auditors] == ["open", "open"]


@FULL
def test_an_auditor_that_computes_for_long_is_not_barred_for_a_seal_that_it_opens_then(new_market: NewMarket) -> None:
    market = beside(new_market, {"probability": 1.0}, tasks=3)
    ann, bea = panel(market, None, None)
    join_panel(ann)
    long = claimed(ann)
    assert long.panel is None
    join_panel(bea)
    bea.work()
    for _ in range(3):
        market.clock.now += LEASE_S * 0.6
        auditor_claims.renew_held_audit(market.context, ann.asker, long.task)
        market.drive()
    assert seats(market)["ann"] == PanelSeatState.SEALED
    ann.answer(long)
    ann.work()
    assert not market.events("auditor_barred")
    assert seats(market) == {"ann": PanelSeatState.OPENED, "bea": PanelSeatState.OPENED}


@FULL
def test_an_auditor_that_renews_its_seat_for_ever_is_barred_at_last(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_checks, "HELD_S", 20 * LEASE_S)
    market = due(new_market)
    ann, bea = panel(market, None, None)
    for one in (ann, bea):
        one.sit(claimed(one))
    sit(bea)
    began = market.clock.now
    while seats(market)["ann"] == PanelSeatState.SEALED and market.clock.now < began + 2 * class_checks.HELD_S:
        market.clock.now += LEASE_S * 0.9
        auditor_claims.renew_held_audit(market.context, ann.asker, market.task().id)
        market.drive()
    assert seats(market)["ann"] == PanelSeatState.WITHHELD
    assert market.clock.now <= began + class_checks.HELD_S + 2 * LEASE_S


@FULL
def test_no_auditor_is_barred_for_the_time_in_which_the_service_was_away(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea = panel(market, None, None)
    for one in (ann, bea):
        one.sit(claimed(one))
    market.clock.now += 10 * LEASE_S
    renew_waits(market.context)
    market.drive()
    sit(ann, bea)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert not market.events("auditor_barred")


@FULL
def test_one_that_leaves_again_and_again_ends_the_panel_and_holds_up_no_job_for_ever(new_market: NewMarket) -> None:
    market = due(new_market)
    ann, bea = panel(market, None, None)
    bea.sit(claimed(bea))
    for _ in range(20):
        ann.claim()
        market.clock.now += 2 * LEASE_S + 1
        market.drive()
    (audit,) = audits_of(market)
    assert audit.state == AuditState.LAPSED
    assert audit.claims == 8
    assert not market.events("audit_failed")


@FULL
def test_panels_that_wait_for_more_auditors_than_there_are_keep_no_other_job_waiting(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel_rows, "MOST", 1)
    market = due(new_market, audit={"probability": 1.0, "auditors": {"count": 7, "agree": 4}})
    market.also(OTHER, 17, audit=TWO)
    market.until(lambda: len(audits_of(market)) == 2)
    ann, bea = panel(market, None, None)
    sit(ann, bea)
    assert {audit.job_id: audit.state for audit in audits_of(market)} == {
        market.job: AuditState.DUE,
        OTHER: AuditState.PASSED,
    }


@FULL
def test_audits_by_panels_take_turns_with_those_of_other_jobs(new_market: NewMarket) -> None:
    market = beside(new_market, {"probability": 1.0}, tasks=3)
    ann, _ = panel(market, None, None)
    taken = []
    for _ in range(3):
        work = claimed(ann)
        taken.append(work.panel)
        ann.answer(work)
        market.clock.now += 1.0
    assert "seal" in taken[:2]


def test_a_seat_is_held_for_a_few_leases_however_often_it_is_renewed(new_market: NewMarket) -> None:
    market = due(new_market)
    (ann,) = panel(market, HONEST)
    work, began = claimed(ann), market.clock.now
    while seats(market)["ann"] == PanelSeatState.TAKEN and market.clock.now < began + class_checks.HELD_S:
        auditor_claims.renew_held_audit(market.context, ann.asker, work.task)
        market.lapse(LEASE_S - 1.0)
    assert market.clock.now <= began + (panel_exchange.SEAT_LEASES + 2) * LEASE_S


def test_an_auditor_that_left_seats_of_the_job_waits_longer_each_time(new_market: NewMarket) -> None:
    market = due(new_market)
    (ann,) = panel(market, HONEST)
    with market.context.begin() as work:
        for run in (7, 8):
            fields = {"task_id": market.task().id, "run": run, "operator": "ann", "job_id": market.job}
            left = {"number": 0, "auditor": "her machine", "state": PanelSeatState.LEFT}
            work.add(PanelSeat(**fields, **left, claimed_until=market.clock()))
    assert ann.claim() is None
    market.lapse(LEASE_S + 1.0)
    assert ann.claim() is None, "two leases, since it left two"
    market.lapse(LEASE_S + 1.0)
    assert claimed(ann).panel == "seal"
