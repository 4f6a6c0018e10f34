"""Audits of two windows of a task: uploads of states, the detection of cheats, and the cost of silence."""

from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features import windows as task_windows
from gradmarket.market.rules import secrets
from gradmarket.market.terms import AuditState, Digest, JobState, TaskState
from gradmarket.market.wire.poll import hash_of
from requester.features.audits.audit_tables import Audit
from requester.features.windows import state_upload
from requester.features.windows.window_states import WindowState
from requester.store import stored_times, visibility
from requester.store.tables import Reputation, UnneededBlob
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, MarketFixture
from tests.requester.market_windows import LEAVES, LOCAL, Silent, WindowWorker, skipping

NewMarket = Callable[..., MarketFixture]
ALWAYS = {"probability": 1.0, "on_failure": "replay"}
TASKS = 16
"""So many that one of them has its first window drawn, and one another: else in one run of 650."""


def windowed(new_market: NewMarket, **spec: Any) -> MarketFixture:
    return new_market(step=LOCAL, **({"audit": ALWAYS} | spec))


def team(market: MarketFixture, *kinds: type[WindowWorker]) -> list[WindowWorker]:
    workers = [market.worker(kind=kind) for kind in kinds]
    return [worker for worker in workers if isinstance(worker, WindowWorker)]


def auditor_of(market: MarketFixture) -> SimAuditor:
    return SimAuditor(market, kind=WindowWorker)


def accepted(market: MarketFixture) -> Audit:
    """Until the first task is accepted, and nobody has brought a state; its audit."""
    for worker in market.workers:
        worker.serves = False  # type: ignore[attr-defined]
    market.until(lambda: audits_of(market))
    for worker in market.workers:
        worker.serves = True  # type: ignore[attr-defined]
    return audits_of(market)[0]


def test_honest_work_passes_by_two_windows(new_market: NewMarket) -> None:
    market = windowed(new_market, rounds=4)
    team(market, WindowWorker, WindowWorker, WindowWorker)
    auditor_of(market).play()
    assert market.state() == JobState.FINISHED
    audits = audits_of(market)
    assert [(audit.state, audit.runs) for audit in audits] == [(AuditState.PASSED, 1)] * 4
    for audit, task in zip(audits, market.tasks(), strict=True):
        link = secrets.of_task(task.secret, 3)[-1]
        root = hash_of(Digest(task.root or ""))
        assert audit.window == task_windows.draw_audited_window(link, task.offer_digest, root, LEAVES)
    assert market.all(WindowState) == market.all(UnneededBlob) == []
    check_books(market)


@FULL
def test_two_windows_add_nothing_to_a_record(new_market: NewMarket) -> None:
    market = windowed(new_market, rounds=3)
    team(market, WindowWorker, WindowWorker, WindowWorker)
    auditor_of(market).play()
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED] * 3
    assert market.all(Reputation) == []


def test_the_states_are_gone_when_the_audit_is_over(new_market: NewMarket) -> None:
    market = windowed(new_market)
    workers = team(market, WindowWorker, WindowWorker, WindowWorker)
    accepted(market)
    digests = [row.digest for row in market.all(WindowState)]
    assert sum(worker.serve() for worker in workers) == len(digests) > 0
    assert all(market.context.blobs.has(digest) for digest in digests)
    with market.reading() as reader:
        assert all(visibility.load_access(reader, digest).answer for digest in digests)
    auditor_of(market).work()
    assert not any(market.context.blobs.has(digest) for digest in digests)


@pytest.mark.parametrize("skipped", leave_to_full(range(LEAVES + 1)))
def test_a_quorum_that_leaves_out_one_window_is_found_where_that_is_drawn(new_market: NewMarket, skipped: int) -> None:
    """And always where it is the last one. Found is found by whole runs more, of which two agree."""
    market = windowed(new_market)
    team(market, skipping(skipped), skipping(skipped), WindowWorker)
    drawn = accepted(market).window
    market.until(lambda: not any(not row.brought for row in market.all(WindowState)))
    auditor_of(market).work()
    (audit,) = audits_of(market)
    found = skipped in (drawn, LEAVES)
    assert audit.state == (AuditState.FAILED if found else AuditState.PASSED)
    assert audit.runs in ((2, 3) if found else (1,))
    assert audit.window == (None if found else drawn)


@FULL
def test_tasks_that_passed_by_windows_are_audited_wholly_once_one_fails(new_market: NewMarket) -> None:
    """Tasks without their first window: those for which another one was drawn passed, or are about to."""
    market = windowed(new_market, tasks_per_round=TASKS)
    liars = team(market, skipping(0), skipping(0), WindowWorker)[:2]
    market.until(lambda: len([task for task in market.tasks() if task.state == TaskState.ACCEPTED]) == TASKS)
    drawn = {audit.task_id: audit.window for audit in audits_of(market)}
    assert {0} < set(drawn.values())
    auditor_of(market).work()
    audits = [audit for audit in audits_of(market) if audit.task_id in drawn]
    assert [(audit.state, audit.window) for audit in audits] == [(AuditState.FAILED, None)] * TASKS
    assert market.all(WindowState) == []
    assert all(market.row(liar).accepted_at is not None for liar in liars)


@FULL
def test_a_run_of_windows_that_is_overtaken_counts_no_more(new_market: NewMarket) -> None:
    """The auditor is at two windows of a task while another audit of its operator fails."""
    market = windowed(new_market, tasks_per_round=TASKS)
    team(market, skipping(0), skipping(0), WindowWorker)
    market.until(lambda: len([task for task in market.tasks() if task.state == TaskState.ACCEPTED]) == TASKS)
    slow = auditor_of(market)
    held = []
    while (claimed := slow.claim()) and claimed.window is not None:
        held.append(claimed)
    passing = next(claimed for claimed in held if claimed.window and claimed.window.window)
    failing = next(claimed for claimed in held if claimed.window and not claimed.window.window)
    again = 0
    while slow.answer(failing, again):
        again += 1
    market.drive()
    with pytest.raises(Conflict):
        slow.answer(passing)
    slow.work()
    assert {audit.state for audit in audits_of(market) if audit.task_id == passing.task} == {AuditState.FAILED}


@FULL
def test_an_audit_after_a_failed_one_is_of_the_whole(new_market: NewMarket) -> None:
    """Where the draw passed over the operator's other tasks."""
    market = windowed(new_market, tasks_per_round=TASKS, audit={"probability": 0.5, "on_failure": "replay"})
    team(market, skipping(LEAVES), skipping(LEAVES), WindowWorker)
    market.until(lambda: len([task for task in market.tasks() if task.state == TaskState.ACCEPTED]) == TASKS)
    before = {audit.task_id for audit in audits_of(market)}
    assert 0 < len(before) < TASKS
    auditor_of(market).work()
    others = [audit for audit in audits_of(market) if audit.task_id not in before]
    assert {audit.state for audit in others} == {AuditState.FAILED}


@FULL
def test_an_unproven_class_is_audited_by_whole_tasks(new_market: NewMarket) -> None:
    alone = {"name": "fixed", "replicas": 1, "max_replicas": 1}
    market = windowed(new_market, rounds=5, replication=alone)
    team(market, WindowWorker, WindowWorker, WindowWorker)
    auditor_of(market).play()
    kinds = [audit.window is None for audit in audits_of(market)]
    assert kinds[:3] == [True] * 3
    assert market.the_job().proven_class == CLASS
    assert False in kinds


def test_states_are_not_waited_for_an_hour_longer_where_the_clock_was_ahead(new_market: NewMarket) -> None:
    market = windowed(new_market, rounds=1)
    team(market, Silent, Silent, Silent)
    market.clock.now += 3600.0
    market.until(lambda: audits_of(market))
    market.clock.now -= 3600.0
    with market.context.begin() as work:
        assert stored_times.bring_back(work, market.clock()) > 0
    market.lapse(31.0)
    assert "an auditor of class cpu" in market.why_waiting()


def test_a_worker_that_uploads_no_states_gets_a_strike_and_a_whole_audit(new_market: NewMarket) -> None:
    market = windowed(new_market, rounds=1)
    workers = team(market, Silent, Silent, Silent)
    auditor = auditor_of(market)
    market.until(lambda: audits_of(market))
    assert auditor.work() == 0
    assert market.why_waiting() == "accepted tasks wait for states that their workers are to bring"
    market.lapse(31.0)
    assert market.why_waiting() == "accepted tasks wait for an auditor of class cpu (gradmarket auditor run)"
    claimed = auditor.claim()
    assert claimed is not None
    assert claimed.window is None
    assert sorted(market.strikes(worker) for worker in workers) == [0, 0, 1]
    assert not auditor.answer(claimed)
    market.drive()
    assert audits_of(market)[0].state == AuditState.PASSED
    assert {row.passed for row in market.all(Reputation)} == {1}
    assert all(state_upload.list_asked_states(market.context, worker.address).states == () for worker in workers)


def test_a_liar_gains_nothing_by_silence(new_market: NewMarket) -> None:
    market = windowed(new_market)
    liar = type("SilentLiar", (Silent,), {"skips": 0})
    team(market, liar, liar, WindowWorker)
    market.until(lambda: audits_of(market))
    market.lapse(31.0)
    auditor_of(market).work()
    assert audits_of(market)[0].state == AuditState.FAILED


def test_only_the_asked_worker_uploads_a_state_and_only_the_asked_one(new_market: NewMarket) -> None:
    market = windowed(new_market)
    workers = team(market, WindowWorker, WindowWorker, WindowWorker)
    accepted(market)
    (asked, *_), others = _split(market, workers)
    request = state_upload.list_asked_states(market.context, asked.address).states[0]
    state = asked.state(request.replica, request.digest)
    for other in others:
        assert state_upload.list_asked_states(market.context, other.address).states == ()
        with pytest.raises(NotFound):
            other.bring_state(request.digest, state)
    with pytest.raises(NotFound):
        asked.bring_state(Digest("blake3:" + "0" * 64), state)
    with pytest.raises(Refused, match="the bytes are"):
        asked.bring_state(request.digest, state[:-1] + bytes([state[-1] ^ 1]))
    asked.bring_state(request.digest, state)
    with pytest.raises(NotFound):
        asked.bring_state(request.digest, state)


def test_a_state_that_comes_too_late_is_not_kept(new_market: NewMarket) -> None:
    market = windowed(new_market)
    workers = team(market, WindowWorker, WindowWorker, WindowWorker)
    accepted(market)
    (asked, *_), _others = _split(market, workers)
    request = state_upload.list_asked_states(market.context, asked.address).states[0]
    state, context = asked.state(request.replica, request.digest), market.context
    want = state_upload.load_wanted_state(context, asked.address, request.digest)
    with context.blobs.receive() as incoming:
        incoming.write(state)
        market.clock.now += 31.0
        with pytest.raises(NotFound):
            state_upload.store_state(context, want, incoming)
    assert not context.blobs.has(request.digest)


class Vandal(WindowWorker):
    """Names another blob of the service as every leaf, to have it dropped with the states."""

    def _encoded(self, answer: Any, offer: Any, leaves: Any) -> bytes:
        return super()._encoded(answer, offer, [offer.parameters for _ in leaves])


@FULL
def test_a_leaf_that_names_another_blob_does_it_no_harm(new_market: NewMarket) -> None:
    market = windowed(new_market)
    vandals = team(market, Vandal, Vandal, WindowWorker)
    accepted(market)
    parameters = market.rounds()[0].parameters
    with market.reading() as reader:
        assert not visibility.load_access(reader, parameters).answer, "no worker could read what it is to compute from"
    (asked, *_), _others = _split(market, vandals)
    with pytest.raises(Refused, match="no state"):
        asked.bring_state(parameters, market.context.blobs.read(parameters))
    market.lapse(31.0)
    auditor_of(market).work()
    assert audits_of(market)[0].state == AuditState.FAILED
    assert market.context.blobs.has(parameters)


def _split(market: MarketFixture, workers: list[WindowWorker]) -> tuple[list[WindowWorker], list[WindowWorker]]:
    """Those that are asked for a state, and the others."""
    asked = {row.worker for row in market.all(WindowState)}
    return [one for one in workers if one.address in asked], [one for one in workers if one.address not in asked]
