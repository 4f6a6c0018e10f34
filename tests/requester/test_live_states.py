"""How much memory the models and optimizer states take that a process has at hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradmarket.market.terms import Digest, RoundState
from gradmarket.requester import live_states
from gradmarket.requester.live_states import LiveState, Version
from gradmarket.requester.moves import replay
from gradmarket.requester.store.tables import Round
from tests.requester.market_fixture import MarketFixture

NewFloor = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}, "rounds": 4}
OTHER = "00000000000000bb"
FITS_ONE = 600


def test_a_state_is_let_go_before_another_is_loaded_that_does_not_fit_beside_it(
    new_floor: NewFloor, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = new_floor(settings={"merge_memory": FITS_ONE}, **ALONE)
    market.worker()
    market.until(lambda: market.rounds()[0].state == RoundState.CLOSED)
    beside: list[LiveState | None] = []

    def load(*arguments: Any) -> LiveState:
        beside.append(market.context.states.take(market.job))
        loaded = live_states.load(*arguments)
        assert FITS_ONE / 2 < loaded.length <= FITS_ONE
        return loaded

    monkeypatch.setattr(replay, "load", load)
    market.also(OTHER, 8, **ALONE)
    (first,) = market.all(Round, Round.job_id == OTHER)
    replay.state_before(market.context, OTHER, Version(0, Digest(first.parameters), None))
    assert beside == [None]


def test_what_the_containers_processes_keep_leaves_half_of_their_memory_to_what_they_do() -> None:
    celery = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())["services"]["celery"]
    assert set(celery["environment"]) > {"GRADMARKET_BROKER", "GRADMARKET_SECRETS"}
    kept, processes = (
        _default(text) for text in (celery["environment"]["GRADMARKET_MERGE_MEMORY"], celery["command"][3])
    )
    assert processes * kept <= int(celery["mem_limit"].removesuffix("g")) * 2**30 / 2


def _default(text: str) -> int:
    """Of `${NAME:-default}`."""
    return int(text.partition(":-")[2].removesuffix("}"))
