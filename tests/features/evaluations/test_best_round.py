"""The checkpoint that did best on the held-out rows stays, however old it is, until another does better."""

from typing import Any

import pytest

from gradmarket.market.terms import Digest, JobState
from requester.features import evaluations
from requester.features.evaluations import find_best_round
from tests.lanes import FULL
from tests.requester.conftest import NewMarket
from tests.requester.market_fixture import MarketFixture

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
MEASURED = {"evaluation": {"partition": "test"}, "rounds": 8, "settings": {"keep_parameters_every": 100}}


def measure(monkeypatch: pytest.MonkeyPatch, values: list[float | None]) -> None:
    """The accuracy after each round, which no document here computes."""

    def measure_value(_context: Any, _spec: Any, number: int, *_: Any) -> tuple[dict[str, float], str]:
        value = values[number]
        return ({} if value is None else {"accuracy": value}), ""

    monkeypatch.setattr(evaluations, "evaluate_if_due", measure_value)


def list_stored_rounds(market: MarketFixture) -> list[int]:
    """Rounds whose parameters are stored."""
    return [row.number for row in market.rounds() if row.updated and market.context.blobs.has(Digest(row.updated))]


def played(new_market: NewMarket, monkeypatch: pytest.MonkeyPatch, values: list[float | None]) -> MarketFixture:
    measure(monkeypatch, values)
    market = new_market(**MEASURED, **ALONE)
    market.worker()
    market.play(passes=100)
    assert market.state() == JobState.FINISHED, market.why_waiting()
    return market


def test_the_best_parameters_are_kept_and_those_before_them_are_not(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = played(new_market, monkeypatch, [0.5, 0.7, 0.9, None, 0.8, 0.9, 0.1, None])
    assert market.the_job().best_round == 2
    newest = [number for number in list_stored_rounds(market) if number > 3]
    assert list_stored_rounds(market) == [2, *newest]
    assert newest[-1] == 7


@FULL
def test_where_nothing_measures_the_metric_the_loss_decides(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a language model, which has no accuracy: it had no best checkpoint."""
    losses = iter([3.0, 2.0, 1.0, 1.5, 1.0, 2.5, 3.0, 2.0])

    def measure_loss(*_: Any) -> tuple[dict[str, float], str]:
        return {"loss": (loss := next(losses)), "perplexity": 2.0**loss}, ""

    monkeypatch.setattr(evaluations, "evaluate_if_due", measure_loss)
    market = new_market(**MEASURED, **ALONE)
    market.worker()
    market.play(passes=100)
    assert (market.state(), market.the_job().best_round) == (JobState.FINISHED, 2)


def test_a_metric_of_some_rounds_goes_before_the_loss() -> None:
    rounds = [(0, {"loss": 0.1}), (1, {"loss": 3.0, "auc": 0.6}), (2, {"loss": 2.0, "auc": 0.5})]
    assert find_best_round("auc", rounds) == 1
    assert find_best_round("auc", rounds, "lower") == 2
    assert find_best_round("f1", rounds, "higher") == 0, "less loss is better, whatever a rule says of f1"
    assert find_best_round("f1", []) is None


@FULL
def test_a_job_without_held_out_rows_keeps_no_old_round(new_market: NewMarket) -> None:
    """The twin: an unmeasured round is not the best."""
    market = new_market(**ALONE, rounds=8, settings={"keep_parameters_every": 100})
    market.worker()
    market.play(passes=100)
    assert market.the_job().best_round is None
    assert min(list_stored_rounds(market)) > 2


@FULL
def test_a_round_that_is_taken_back_is_no_longer_the_best(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the rounds that stand, the best whose parameters are still there."""
    market = played(new_market, monkeypatch, [0.5, 0.9, 0.6, 0.6, 0.6, 0.7, 0.65, 0.8])
    with market.context.begin() as work:
        job = market.the_job()
        job = work.get_one(type(job), job.id)
        assert job.best_round == 1
        market.context.blobs.drop(Digest(market.rounds()[1].updated))
        evaluations.choose_best_again(market.context, work, job)
        assert job.best_round == 7
