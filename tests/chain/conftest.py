"""A chain fixture of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.ledger import Ledger
from requester.chain.chain_context import ChainPolicy
from tests.chain.chain_fixture import ChainFixture
from tests.onchain import NewKey

NewTill = Callable[..., ChainFixture]


@pytest.fixture
def new_till(tmp_path: Path, ledger: Ledger, new_key: NewKey) -> Iterator[NewTill]:
    made: list[ChainFixture] = []

    def make(on: Ledger | None = None, policy: ChainPolicy | None = None) -> ChainFixture:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(ChainFixture(folder, on or ledger, new_key, *([policy] if policy else [])))
        return made[-1]

    yield make
    for chain_fixture in made:
        chain_fixture.close()


@pytest.fixture
def till_on(new_till: NewTill) -> Callable[[Ledger], ChainFixture]:
    """A chain fixture on another ledger."""
    return lambda ledger: new_till(on=ledger)


@pytest.fixture
def own_till(own_ledger: Ledger, new_till: NewTill) -> ChainFixture:
    """Its chain is the test's own: it moves the time, or stops the mining."""
    return new_till(on=own_ledger)


@pytest.fixture
def chain_fixture(new_till: NewTill) -> ChainFixture:
    return new_till()
