"""Planted tasks: an answer that is known beforehand finds a quorum of liars, and accuses nobody by itself."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.features.planted import compute_catch_rate, is_planted
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import AuditSpec
from gradmarket.market.terms import AuditState, Digest, Hash, JobState
from gradmarket.market.views.trust_views import TrustView
from gradmarket.market.wire.audit_messages import AuditAnswer
from requester.app import create_app
from requester.features.answer_cache import Share
from requester.features.planted import PlantedFeature, planting, trust_figures
from requester.features.planted.planted_rows import PlantedAnswer
from requester.store.tables import Job
from requester.store.work import RowReader
from tests.kit.behaviour import HONEST, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)
PLANTED = {"probability": 1e-12, "planted": 1.0}
"""Audits are never drawn; every task may be planted."""


def fetch_trust(market: MarketFixture) -> dict[str, Any]:
    with TestClient(create_app(market.context, nullcontext)) as client:
        return dict(client.get(f"/v1/jobs/{market.job}/trust").json())


def test_strangers_have_the_figures_counted_once_a_while(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, load_trust = [0.0], trust_figures.load_trust

    def count(reader: RowReader, job: Job) -> TrustView:
        seconds[0] += 1.0  # it takes a second of the share's clock
        return load_trust(reader, job)

    market = new_market(rounds=2, audit=PLANTED)
    workers = [market.worker() for _ in range(3)]
    monkeypatch.setattr(trust_figures, "load_trust", count)
    app = create_app(market.context, nullcontext)
    app.state.strangers_share = Share(lambda: seconds[0])
    PlantedFeature().open_caches(app.state, market.context)
    with TestClient(app, client=("203.0.113.9", 1)) as stranger:
        answers = [stranger.get(f"/v1/jobs/{market.job}/trust").json() for _ in range(3)]
        assert (seconds, answers[1:]) == ([1.0], answers[:2])
        market.until(lambda: len(market.rounds()) == 2, *workers)
        seconds[0] += 1000.0
        assert stranger.get(f"/v1/jobs/{market.job}/trust").status_code == 200
    assert seconds == [1002.0]


def planted(market: MarketFixture, auditor: SimAuditor) -> None:
    """Everybody has asked for the task, nobody has answered it, and the auditor has."""
    market.gather()
    assert auditor.work() == 1


def test_known_answers_confirm_honest_work_without_any_audit(new_market: NewMarket) -> None:
    market = new_market(rounds=3, audit=PLANTED)
    workers = [market.worker() for _ in range(3)]
    auditor = SimAuditor(market)
    planted(market, auditor)
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert not audits_of(market)
    trust = fetch_trust(market)
    known = trust["planted"]["tasks"]
    assert trust["planted"] == {"tasks": known, "answers": 3 * known, "wrong": 0, "caught": 0, "false_alarms": 0}
    assert (trust["tasks"], trust["share"], trust["catch_rate"], trust["false_alarm_rate"]) == (3, known / 3, None, 0.0)
    assert market.earned() == {worker.address: 3 * PRICE for worker in workers}
    check_books(market)


def test_a_quorum_of_liars_is_found_by_a_known_answer(new_market: NewMarket) -> None:
    market = new_market(audit=PLANTED)
    liars, honest = [market.worker(LIE), market.worker(LIE)], market.worker()
    auditor = SimAuditor(market)
    planted(market, auditor)
    market.until(lambda: audits_of(market))
    (ordered,) = audits_of(market)
    assert (ordered.reason, ordered.rate) == (planting.DIFFERS, 1.0)
    assert auditor.work() >= 2
    (event,) = market.events("audit_failed")
    assert (set(event["workers"]), event["vindicated"]) == ({liar.address for liar in liars}, [honest.address])
    trust = fetch_trust(market)
    assert trust["planted"] == {"tasks": 1, "answers": 3, "wrong": 2, "caught": 0, "false_alarms": 1}
    assert trust["catch_rate"] == pytest.approx(0.0)
    assert trust["false_alarm_rate"] == 1.0
    market.worker(), market.worker()
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert market.earned()[honest.address] == 2 * PRICE
    check_books(market)


def test_a_lone_liar_is_caught_by_the_vote(new_market: NewMarket) -> None:
    market = new_market(audit=PLANTED)
    market.worker(LIE), market.worker(), market.worker()
    planted(market, SimAuditor(market))
    market.play()
    trust = fetch_trust(market)
    assert trust["planted"] == {"tasks": 1, "answers": 3, "wrong": 1, "caught": 1, "false_alarms": 0}
    assert trust["catch_rate"] == 1.0


@FULL
def test_an_auditor_that_errs_accuses_nobody(new_market: NewMarket) -> None:
    market = new_market(audit=PLANTED)
    workers = [market.worker() for _ in range(3)]
    auditor = SimAuditor(market, LIE)
    planted(market, auditor)
    market.until(lambda: audits_of(market))
    auditor.computer.behaviour = HONEST
    auditor.play()
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    trust = fetch_trust(market)
    assert (trust["auditor_errors"], trust["planted"]["wrong"]) == (1, 0)
    assert market.earned() == {worker.address: PRICE for worker in workers}


@FULL
def test_drawn_audits_count_beside_planted_tasks(new_market: NewMarket) -> None:
    market = new_market(audit={"probability": 1.0})
    market.worker(LIE), market.worker(LIE), market.worker()
    market.until(lambda: audits_of(market))
    SimAuditor(market).work()
    trust = fetch_trust(market)
    assert trust["audited"] == {"tasks": 1, "answers": 3, "wrong": 2, "caught": 0, "false_alarms": 1}
    assert (trust["planted"]["tasks"], trust["share"], trust["catch_rate"]) == (0, 1.0, 1.0)


@FULL
def test_a_planted_task_answered_before_its_audit_does_not_count(new_market: NewMarket) -> None:
    market = new_market(audit=PLANTED)
    market.worker(), market.worker(), market.worker()
    auditor = SimAuditor(market)
    market.gather()
    claimed = auditor.claim()
    assert claimed is not None
    assert claimed.planted
    market.play()
    auditor.answer(claimed)
    assert market.all(PlantedAnswer)[0].root is None
    assert fetch_trust(market)["planted"]["tasks"] == 0


def test_one_auditor_at_a_time_plants_and_keeps_to_its_answer(new_market: NewMarket) -> None:
    market = new_market(audit=PLANTED)
    market.worker(), market.worker(), market.worker()
    market.gather()
    first, second = SimAuditor(market), SimAuditor(market, name="another")
    claimed = first.claim()
    assert claimed is not None
    assert second.claim() is None, "somebody computes it"
    market.clock.now += claimed.seconds + 1
    taken = second.claim()
    assert taken is not None
    with pytest.raises(Conflict, match="claimed by another"):
        first.answer(claimed)
    second.answer(taken)
    second.answer(taken)
    other = AuditAnswer(auditor="another", run=taken.run, root=Digest("blake3:" + "0" * 64))
    with pytest.raises(Conflict, match="found another answer"):
        planting.record_planted_answer(market.context, taken.task, other)
    with pytest.raises(NotFound, match="not planted"):
        planting.record_planted_answer(market.context, "nowhere", other)


def test_planting_is_refused_where_bits_are_not_compared() -> None:
    spec = {
        "name": "digits",
        "model": {"architecture": "mlp"},
        "data": {"ready": "digits"},
        "step": {"rows": 8},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "rounds": 1,
        "price": "7",
        "audit": {"probability": 0.5, "planted": 0.5},
    }
    assert JobSpec.model_validate(spec).audit
    two = {"name": "fixed", "replicas": 2, "max_replicas": 2}
    with pytest.raises(ValueError, match=r"audit\.planted"):
        JobSpec.model_validate({**spec, "verifier": {"name": "tolerance"}, "replication": two})


def test_a_job_without_planted_tasks_has_the_digest_that_it_had() -> None:
    assert "planted" not in AuditSpec(probability=0.5).model_dump(mode="json")


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.floats(0, 1))
def test_the_draw_grows_with_the_share_and_needs_the_link(link: bytes, offer: bytes, share: float) -> None:
    drawn = is_planted(Hash(link), Hash(offer), share)
    assert is_planted(Hash(link), Hash(offer), 1.0)
    assert not is_planted(Hash(link), Hash(offer), 0.0)
    assert not drawn or is_planted(Hash(link), Hash(offer), min(1.0, share * 2))


@given(st.integers(0, 50), st.integers(0, 50), st.floats(0, 1))
def test_the_catch_rate_lies_between_the_votes_alone_and_all(caught: int, missed: int, rate: float) -> None:
    found = compute_catch_rate(caught + missed, caught, rate)
    if caught + missed:
        assert found is not None
        assert caught / (caught + missed) - 1e-12 <= found <= 1.0 + 1e-12
        assert compute_catch_rate(caught + missed, caught, 1.0) == 1.0
    else:
        assert found is None
