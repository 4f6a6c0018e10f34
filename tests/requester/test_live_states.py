"""How much memory the models and optimizer states take that a process has at hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradmarket.market.terms import Digest, JobState, RoundState
from requester import live_states
from requester.blobs import Blobs
from requester.live_states import LiveState, Version
from requester.moves import replay
from requester.moves.ending import end_job
from requester.store.locks import lock_row
from requester.store.tables import Job, Round
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}, "rounds": 4}
OTHER = "00000000000000bb"
FITS_ONE = 600


def test_a_state_is_released_before_another_that_does_not_fit_beside_it_is_loaded(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = new_market(settings={"merge_memory": FITS_ONE}, **ALONE)
    market.worker()
    market.until(lambda: market.rounds()[0].state == RoundState.CLOSED)
    beside: list[LiveState | None] = []

    def load(*arguments: Any) -> LiveState:
        beside.append(market.context.states.take(market.job))
        loaded = live_states.load_live_state(*arguments)
        assert FITS_ONE / 2 < loaded.length <= FITS_ONE
        return loaded

    monkeypatch.setattr(replay, "load_live_state", load)
    market.also(OTHER, 8, **ALONE)
    (first,) = market.all(Round, Round.job_id == OTHER)
    replay.state_before(market.context, OTHER, Version(0, Digest(first.parameters), None))
    assert beside == [None]


@pytest.mark.parametrize("audited", [False, True])
def test_the_state_of_an_ended_job_is_released_at_once(new_market: NewMarket, audited: bool) -> None:
    market = new_market(**ALONE, **({"audit": {"probability": 1.0}} if audited else {}))
    market.worker()
    market.until(lambda: len(market.rounds()) == 2)
    assert market.context.states.jobs() == [market.job]
    market.cancel()
    assert market.context.states.jobs() == []


def test_the_state_that_is_merged_while_its_job_ends_is_released(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = new_market(**ALONE)
    market.worker()

    def merge(blobs: Blobs, inputs: replay.MergeInputs, state: LiveState) -> float:
        loss = replay_merge(blobs, inputs, state)
        with market.context.begin() as work:
            end_job(market.context, work, lock_row(work, Job, market.job), JobState.CANCELLED, "cancelled meanwhile")
        return loss

    replay_merge = replay.merge_round
    monkeypatch.setattr(replay, "merge_round", merge)
    market.until(lambda: market.state() == JobState.CANCELLED)
    market.drive()
    assert market.rounds()[0].state == RoundState.CLOSED
    assert market.context.states.jobs() == []


def test_the_state_of_a_job_that_ended_elsewhere_is_released_at_the_next_merge(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    market.worker()
    market.until(lambda: len(market.rounds()) == 2)
    other = market.another()
    with other.begin() as work:
        end_job(other, work, lock_row(work, Job, market.job), JobState.CANCELLED, "cancelled elsewhere")
    assert market.context.states.jobs() == [market.job]
    market.also(OTHER, 8, **ALONE)
    market.until(lambda: market.all(Round, Round.job_id == OTHER, Round.number == 1))
    assert market.context.states.jobs() == [OTHER]


def test_the_containers_merge_memory_is_at_most_half_of_their_limit() -> None:
    celery = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())["services"]["celery"]
    assert set(celery["environment"]) > {"GRADMARKET_BROKER", "GRADMARKET_SECRETS"}
    kept, processes = (
        _default(text) for text in (celery["environment"]["GRADMARKET_MERGE_MEMORY"], celery["command"][3])
    )
    assert processes * kept <= int(celery["mem_limit"].removesuffix("g")) * 2**30 / 2


def _default(text: str) -> int:
    """Of `${NAME:-default}`."""
    return int(text.partition(":-")[2].removesuffix("}"))
