"""A failed audit becomes one accusation on the chain: who does not contest is slashed, and who is right is not."""

from dataclasses import dataclass
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from sqlalchemy import select

from contracts import calls, stakes
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.stakes import compute_accusation_event
from gradmarket.market.terms import AccusationState, Address, Amount, Hash
from requester.chain import escrow
from requester.features.stakes import accusations
from requester.features.stakes.accusations import Accusation
from requester.features.stakes.accusing import advance_accusations as accusing_step
from requester.store import jobs
from requester.store.tables import Job, JobEvent, Replica, Task, Transaction
from tests.chain.chain_fixture import ChainFixture
from tests.onchain import HOUR, NewKey, with_money

BOND, STAKE, AT_RISK, WINDOW = 5, 1_000, 300, 3 * HOUR
WRONG, RIGHT = "blake3:" + "aa" * 32, "blake3:" + "bb" * 32


@dataclass
class Court:
    """A job that slashes, on a chain of its own, and a worker with a stake in it whose gradient an audit revoked."""

    chain_fixture: ChainFixture
    job: str
    worker: PrivateKey
    judge: PrivateKey

    @property
    def market(self) -> Address:
        return self.chain_fixture.chain.market

    def send(self, key: PrivateKey, call: calls.Call) -> None:
        require_receipt(execute_call(self.chain_fixture.ledger.web3, key, call))

    def joins(self) -> None:
        terms = jobs.load_spec(self.chain_fixture.job(self.job)).stake
        assert terms is not None
        self.send(with_money(self.chain_fixture.ledger, self.worker), calls.stake(self.market, Amount(STAKE)))
        chain_job = self.chain_fixture.job(self.job).chain_job or 0
        self.send(
            self.worker, calls.join_job(self.market, chain_job, Amount(AT_RISK), escrow.compute_quorum_hash(terms))
        )

    def audit_fails(self) -> None:
        """As audits.audit does."""
        worker = self.chain_fixture.joins(self.job, self.worker)
        self.chain_fixture.earns(self.job, worker)
        with self.chain_fixture.chain.begin() as work:
            task = work.session.scalars(select(Task).where(Task.job_id == self.job)).one()
            replica = work.session.scalars(select(Replica).where(Replica.task_id == task.id)).one()
            replica.sealed, replica.root = b"\x01" * 32, WRONG
            accusations.create_accusations(
                work, work.get_one(Job, self.job), task, [replica], RIGHT, self.chain_fixture.clock()
            )

    def accusation(self) -> Accusation:
        with self.chain_fixture.chain.reading() as reader:
            return reader.session.scalars(select(Accusation)).one()

    def passes(self, seconds: int) -> None:
        call_json_rpc(self.chain_fixture.ledger.web3, "evm_increaseTime", hex(seconds))
        call_json_rpc(self.chain_fixture.ledger.web3, "evm_mine")
        self.chain_fixture.settle_down()

    def contest(self) -> None:
        self.send(
            with_money(self.chain_fixture.ledger, self.worker), calls.contest(self.market, Hash(self.accusation().case))
        )
        self.chain_fixture.settle_down()

    def rule(self, guilty: bool) -> None:
        case = Hash(self.accusation().case)
        ruling = sign_digest(
            self.judge, digest_struct(self.chain_fixture.ledger.domain(), Ruling(case, Amount(AT_RISK), guilty))
        )
        judge = with_money(self.chain_fixture.ledger, self.judge)
        self.send(judge, calls.decide(self.market, case, guilty, [address_of(judge)], 1, [ruling]))
        self.chain_fixture.settle_down()

    def staked(self, key: PrivateKey | None = None) -> int:
        return stakes.staker(self.chain_fixture.ledger, address_of(key or self.worker)).amount

    def sent(self, kind: str) -> list[Any]:
        return self.chain_fixture.all(Transaction, Transaction.kind == kind)


@pytest.fixture
def court(own_ledger: Ledger, new_till: Any, new_key: NewKey) -> Court:
    chain_fixture, judge = new_till(on=own_ledger), new_key()
    windows = {"slash_s": 20 * HOUR, "contest_s": WINDOW, "decide_s": WINDOW}
    terms = {"validators": [address_of(judge)], "bond": str(BOND), **windows}
    job = chain_fixture.new_job(audit={"probability": 1.0}, stake=terms)
    chain_fixture.settle_down()
    return Court(chain_fixture, job, new_key(), judge)


def test_an_uncontested_accusation_is_made_once_and_slashes_all_that_was_at_risk(court: Court) -> None:
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
    assert court.staked() == STAKE
    before = court.chain_fixture.ledger.balance(court.chain_fixture.chain.sender)
    court.passes(WINDOW + 2)
    assert court.accusation().state == AccusationState.SLASHED
    assert court.staked() == STAKE - AT_RISK
    assert stakes.to_burn(court.chain_fixture.ledger) == AT_RISK
    assert court.chain_fixture.ledger.balance(court.chain_fixture.chain.sender) == before + BOND
    assert len(court.sent("accuse")) == len(court.sent("close")) == 1
    kinds = [event.kind for event in court.chain_fixture.all(JobEvent, JobEvent.kind.startswith("accusation"))]
    assert kinds == ["accusation_open", "accusation_slashed"]


def test_an_office_that_is_killed_before_it_sends_accuses_once(court: Court) -> None:
    court.joins()
    court.audit_fails()
    assert accusing_step(court.chain_fixture.chain)
    assert not accusing_step(court.chain_fixture.chain)
    court.chain_fixture.restart()
    court.chain_fixture.settle_down()
    assert court.accusation().state == AccusationState.OPEN
    assert [each.state for each in court.sent("accuse")] == ["mined"]


def evidence(court: Court) -> tuple[Hash, Hash, Hash, Hash]:
    (task,) = court.chain_fixture.all(Task)
    return Hash(task.offer_digest), Hash(b"\x01" * 32), Hash(b"\xaa" * 32), Hash(b"\xbb" * 32)


def test_who_contests_and_is_right_loses_nothing_and_the_bond_is_burnt(court: Court) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    court.contest()
    assert court.accusation().state == AccusationState.CONTESTED
    court.rule(guilty=False)
    assert court.accusation().state == AccusationState.ACQUITTED
    assert court.staked() == STAKE
    assert stakes.to_burn(court.chain_fixture.ledger) == BOND
    assert court.chain_fixture.account(court.job, address_of(court.worker)).at_risk == AT_RISK
    court.passes(2 * WINDOW)
    assert court.staked() == STAKE


def test_who_contests_and_lies_is_slashed_by_the_validators(court: Court) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    court.contest()
    court.rule(guilty=True)
    assert court.accusation().state == AccusationState.SLASHED
    assert court.staked() == STAKE - AT_RISK
    assert court.staked(court.chain_fixture.key) == 0


def test_validators_that_stay_silent_slash_nobody(court: Court) -> None:
    court.joins()
    court.audit_fails()
    court.chain_fixture.settle_down()
    court.contest()
    court.passes(WINDOW + 2)
    assert court.accusation().state == AccusationState.DISMISSED
    assert court.staked() == STAKE


def test_who_has_nothing_at_risk_is_not_accused(court: Court) -> None:
    court.audit_fails()
    court.chain_fixture.settle_down()
    assert court.accusation().state == AccusationState.VOID
    assert court.sent("accuse") == []


def test_leaving_after_the_lie_does_not_save_the_stake(court: Court) -> None:
    court.joins()
    court.audit_fails()
    court.send(court.worker, calls.leave_job(court.market, court.chain_fixture.job(court.job).chain_job or 0))
    court.chain_fixture.settle_down()
    court.passes(WINDOW + 2)
    assert court.staked() == STAKE - AT_RISK
