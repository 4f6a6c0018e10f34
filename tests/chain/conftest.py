"""A till of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from onchain import NewKey
from till import Till

from gradmarket.contracts.ledger import Ledger
from gradmarket.requester.chain.desk import Policy

NewTill = Callable[..., Till]


@pytest.fixture
def new_till(tmp_path: Path, ledger: Ledger, new_key: NewKey) -> Iterator[NewTill]:
    made: list[Till] = []

    def make(on: Ledger | None = None, policy: Policy | None = None) -> Till:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Till(folder, on or ledger, new_key, *([policy] if policy else [])))
        return made[-1]

    yield make
    for till in made:
        till.close()


@pytest.fixture
def till_on(new_till: NewTill) -> Callable[[Ledger], Till]:
    """A till on a chain of the test's own."""
    return lambda ledger: new_till(on=ledger)


@pytest.fixture
def till(new_till: NewTill) -> Till:
    return new_till()
