"""The first cases of each kind: whatever comes is read or refused by our own error, and nothing else happens."""

from collections.abc import Iterator
from typing import Final

import pytest

from fuzz.case import chance_of, kind_of, kinds, seed_of
from fuzz.playing import SHARES, Batch, Playing, player
from fuzz.running import run
from gradmarket.runner import Runner
from tests.lanes import FULL

CASES: Final = 2_000
"""They are the same in every run: new ones are found by `make fuzz`."""
QUICK: Final = 400
"""Of them in `make test`."""
RUN: Final = 40
FEW: Final = 100
"""The share of so few that are accepted strays: of these two are enough, of more it is one in twenty."""


@pytest.fixture(scope="module")
def playing() -> Iterator[Playing]:
    with player() as started:
        yield started


def test_every_kind_has_its_share() -> None:
    assert set(SHARES) == set(kinds())
    assert sum(share for kind, share in SHARES.items() if kind != "operators") == 100 == SHARES["operators"]


@FULL
@pytest.mark.parametrize("kind", kinds())
def test_a_case_is_always_the_same(kind: str) -> None:
    for number in (0, 7):
        one, other = (kind_of(kind).case(chance_of(seed_of(kind, number))) for _ in range(2))
        assert one == other


@pytest.mark.parametrize(("first", "last"), [(0, QUICK), pytest.param(QUICK, CASES, marks=FULL)])
@pytest.mark.parametrize("kind", kinds())
def test_hostile_input_is_read_or_refused_and_nothing_else_happens(
    playing: Playing, kind: str, first: int, last: int
) -> None:
    start, end = (cases * SHARES[kind] // 100 for cases in (first, last))
    count = end - start
    outcome = playing.play(Batch(kind, start, count))
    assert outcome.failures == []
    assert outcome.cases == count == outcome.accepted + outcome.refused
    least = 2 if count <= FEW else count / 20
    assert least <= outcome.accepted < count * 4 / 5, "cases that are all refused, or all taken, find nothing"


def test_an_accepted_document_runs_or_is_refused_and_the_child_stays(playing: Playing, runner: Runner) -> None:
    accepted = playing.play(Batch("documents", CASES, 200)).kept
    runner.start()
    before = runner.pid
    outcome = run(runner, accepted[:RUN])
    assert outcome.failures == []
    assert outcome.accepted > 5
    assert outcome.refused > 5
    assert runner.pid == before
