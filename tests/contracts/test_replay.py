"""The same moves in the reference ledger and on the real contract: after each one all balances are equal.

Every refusal has the same name on both sides. `make test-deep` plays longer and more often.
"""

from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from contracts.deployment import MIN_WINDOW_S, deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain
from tests.contracts.play import KEYS, WEALTH, WHO, Play
from tests.contracts.play_stakes import PlayWithStakes
from tests.contracts.reference import Account
from tests.contracts.replay import Replay
from tests.lanes import leave_to_full
from tests.onchain import DEPLOYER

LEAST = 5
"""Plays in `make test`."""


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    chain = LocalChain.start(None)
    web3 = chain.connect()
    made = Replay(Ledger(web3, deploy_market(web3, DEPLOYER, MIN_WINDOW_S)))
    made.begin()
    for key in KEYS.values():
        made.fund(DEPLOYER, key, WEALTH)
    yield made
    chain.stop()


@pytest.mark.hypothesis
@pytest.mark.parametrize("machine", leave_to_full([Play, PlayWithStakes]))
def test_the_contract_keeps_the_reference_s_books(replay: Replay, machine: type[Play]) -> None:
    profile = settings()
    bounded = settings(
        max_examples=max(LEAST, profile.max_examples // 10),
        stateful_step_count=profile.stateful_step_count // 2,
        phases=(Phase.reuse, Phase.generate),  # to read a long play takes less time than to shrink it
    )
    run_state_machine_as_test(lambda: machine(replay), settings=bounded)


class AddingAccount(Account):
    """The error of a simpler ledger: a batch adds to a voucher's sum."""

    @property
    def credited(self) -> int:
        return min(self.settled + self.vouchered, self.reserved)


def test_a_ledger_that_pays_twice_is_found_out(replay: Replay) -> None:
    play = Play(replay)
    play.first_job()
    play.books.jobs[1].accounts = {name: AddingAccount(a.reserved) for name, a in play.books.jobs[1].accounts.items()}
    play.settle("ana", 1, [("wim", 10)], True, True)
    with pytest.raises(AssertionError):
        play.redeem("wim", 1, "wim", 10, True)
    play.teardown()


def test_a_refusal_that_is_expected_in_vain_is_found_out(replay: Replay) -> None:
    play = Play(replay)
    play.first_job()
    play.books.jobs[1].requester = WHO["rob"]
    with pytest.raises(AssertionError, match="NotSender"):
        play.settle("ana", 1, [("wim", 10)], True, True)
    play.teardown()
