"""A failed audit becomes one accusation on the chain: an uncontested one slashes, an honest worker keeps its stake."""

from typing import Any

import pytest
from sqlalchemy import select

from contracts import calls, stakes
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from gradmarket.market.signing import address_of
from gradmarket.market.stakes import compute_accusation_event
from gradmarket.market.terms import AccusationState, Amount, Hash
from requester.chain import sender
from requester.chain.chain_context import TransactionKind, TransactionState
from requester.features.stakes import compute_quorum_hash
from requester.features.stakes.accusing import advance_accusations as accusing_step
from requester.store import jobs
from requester.store.tables import JobEvent, Task, Transaction
from tests.features.stakes.court import BOND, Court
from tests.lanes import FULL
from tests.onchain import HOUR, NewKey

STAKE, AT_RISK, WINDOW = 1_000, 300, 3 * HOUR


class StakeCourt(Court):
    """The job slashes, and the worker has a stake in it."""

    def joins(self) -> None:
        terms = jobs.load_spec(self.chain_fixture.job(self.job)).stake
        assert terms is not None
        self.send(self.worker, calls.stake(self.market, Amount(STAKE)))
        quorum = compute_quorum_hash(terms)
        self.send(self.worker, calls.join_job(self.market, self.chain_job, Amount(AT_RISK), quorum))

    def audit_fails(self, tasks: int = 1) -> None:
        self.chain_fixture.earns(self.job, self.chain_fixture.joins(self.job, self.worker))
        super().audit_fails(tasks)

    def contest(self) -> None:
        self.send(self.worker, calls.contest(self.market, Hash(self.accusation().case)))
        self.chain_fixture.settle_down()

    @property
    def staked(self) -> int:
        return stakes.staker(self.ledger, address_of(self.worker)).amount


@pytest.fixture
def court(own_ledger: Ledger, new_till: Any, new_key: NewKey) -> StakeCourt:
    windows = {"slash_s": 20 * HOUR, "contest_s": WINDOW, "decide_s": WINDOW}
    return StakeCourt.opened(own_ledger, new_till, new_key, "stake", windows)


@FULL
def test_an_uncontested_accusation_is_made_once_and_slashes_all_that_was_at_risk(court: StakeCourt) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    row = court.accusation()
    assert (row.state, row.amount) == (AccusationState.OPEN, str(AT_RISK))
    assert row.event == compute_accusation_event(*evidence(court))
    assert court.chain_fixture.account(court.job, address_of(court.worker)).at_risk == 0
    court.chain_fixture.restart()
    court.chain_fixture.settle_down()
    assert [each.state for each in court.sent("accuse")] == ["mined"]
    assert court.staked == STAKE
    before = court.ledger.balance(court.chain_fixture.chain.sender)
    court.passes(WINDOW + 2)
    assert court.state == AccusationState.SLASHED
    assert court.staked == STAKE - AT_RISK
    assert court.burnt == AT_RISK
    assert court.ledger.balance(court.chain_fixture.chain.sender) == before + BOND
    assert len(court.sent("accuse")) == len(court.sent("close")) == 1
    kinds = [event.kind for event in court.chain_fixture.all(JobEvent, JobEvent.kind.startswith("accusation"))]
    assert kinds == ["accusation_open", "accusation_slashed"]


@FULL
def test_an_office_that_is_killed_before_it_sends_accuses_once(court: StakeCourt) -> None:
    court.joins()
    court.audit_fails()
    assert accusing_step(court.chain_fixture.chain)
    assert not accusing_step(court.chain_fixture.chain)
    court.chain_fixture.restart()
    court.chain_fixture.settle_down()
    assert court.state == AccusationState.OPEN
    assert [each.state for each in court.sent("accuse")] == ["mined"]


def evidence(court: StakeCourt) -> tuple[Hash, Hash, Hash, Hash]:
    (task,) = court.chain_fixture.all(Task)
    return Hash(task.offer_digest), Hash(b"\x01" * 32), Hash(b"\xaa" * 32), Hash(b"\xbb" * 32)


@FULL
def test_an_honest_worker_that_contests_loses_nothing_and_the_bond_is_burnt(court: StakeCourt) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    court.contest()
    assert court.state == AccusationState.CONTESTED
    court.rule(guilty=False)
    assert court.state == AccusationState.ACQUITTED
    assert court.staked == STAKE
    assert court.burnt == BOND
    assert court.chain_fixture.account(court.job, address_of(court.worker)).at_risk == AT_RISK
    court.passes(2 * WINDOW)
    assert court.staked == STAKE


def test_a_liar_that_contests_is_slashed_by_the_validators(court: StakeCourt) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    court.contest()
    court.rule(guilty=True)
    assert court.state == AccusationState.SLASHED
    assert court.staked == STAKE - AT_RISK
    assert stakes.staker(court.ledger, address_of(court.chain_fixture.key)).amount == 0


@FULL
def test_validators_that_stay_silent_slash_nobody(court: StakeCourt) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    court.contest()
    court.passes(WINDOW + 2)
    assert court.state == AccusationState.DISMISSED
    assert court.staked == STAKE


@pytest.mark.parametrize("lost", [False, True], ids=["another is pending", "it is lost"])
def test_a_returned_bond_is_withdrawn_after_another_withdrawal_or_a_lost_one(court: StakeCourt, lost: bool) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    call_json_rpc(court.ledger.web3, "evm_increaseTime", hex(WINDOW + 2))
    court.send(court.worker, calls.close_case(court.market, Hash(court.accusation().case)))
    chain = court.chain_fixture.chain
    if lost:
        assert accusing_step(chain)
        with chain.begin() as work:
            row = work.session.scalars(select(Transaction).where(Transaction.kind == TransactionKind.UNSTAKE)).one()
            row.state = TransactionState.LOST
    else:
        earlier = sender.quote_call(chain, calls.unstake(court.market, Amount(1)))
        assert sender.post_once(chain, earlier, TransactionKind.UNSTAKE, None)
    court.chain_fixture.settle_down()
    assert stakes.staker(court.ledger, chain.sender).amount == 0
    assert court.state == AccusationState.SLASHED


def test_a_worker_with_nothing_at_risk_is_not_accused(court: StakeCourt) -> None:
    court.audit_fails()
    court.chain_fixture.settle_down()
    assert court.state == AccusationState.VOID
    assert court.sent("accuse") == []


@FULL
def test_leaving_after_the_lie_does_not_save_the_stake(court: StakeCourt) -> None:
    court.joins()
    court.audit_fails()
    court.send(court.worker, calls.leave_job(court.market, court.chain_job))
    court.chain_fixture.settle_down()
    court.passes(WINDOW + 2)
    assert court.staked == STAKE - AT_RISK
