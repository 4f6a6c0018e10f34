"""An accepted answer far longer than its round's others is audited, though none is drawn."""

from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.features.audits.auditing import LONGEST, list_long_answers
from gradmarket.market.terms import AuditState, JobState
from requester.features.audits.audit_draws import LONG
from requester.store.tables import Reputation
from tests.kit.behaviour import HONEST, Behaviour, scaled
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]
ALONE: dict[str, Any] = {"replication": {"name": "audited", "audit": 1e-9}, "norm_bound": 1e6}
"""One replica decides a task, and no audit is drawn."""
INFLATED = scaled(100.0)


def play(market: MarketFixture, behaviour: Behaviour) -> MarketFixture:
    """Plays a round of three tasks, of which the behaviour answers one; then an auditor comes."""
    market.prove_class()
    first, *_ = [market.worker(behaviour), market.worker(), market.worker()]
    first.capacity = 1
    market.play()
    return market


def test_a_merged_lie_that_is_inflated_is_audited_and_taken_back(new_market: NewMarket) -> None:
    market = play(new_market(rounds=1, tasks_per_round=3, **ALONE), INFLATED)
    assert [(audit.reason, audit.rate, audit.state) for audit in audits_of(market)] == [(LONG, 1.0, AuditState.DUE)]
    liar = market.workers[0]
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert {row.operator for row in market.all(Reputation, Reputation.failed > 0)} == {liar.address}
    honest = play(new_market(rounds=1, tasks_per_round=3, **ALONE), HONEST)
    assert market.final_parameters() == honest.final_parameters()
    check_books(market)


def test_an_honest_round_has_no_audit_more(new_market: NewMarket) -> None:
    market = play(new_market(rounds=1, tasks_per_round=3, **ALONE), HONEST)
    assert market.state() == JobState.FINISHED
    assert audits_of(market) == []


@pytest.mark.parametrize(
    ("norms", "found"),
    [
        ([], []),
        ([0.0, 0.0, 0.0], []),
        ([1.0, 900.0], []),
        ([1.0, 1.0, LONGEST], []),
        ([1.0, 900.0, 1.0], [1]),
        ([0.0, 0.0, 1.0], [2]),
    ],
)
def test_an_answer_is_long_beside_the_median(norms: list[float], found: list[int]) -> None:
    assert list_long_answers({str(task): norm for task, norm in enumerate(norms)}) == list(map(str, found))
