"""A failed audit of a job that vests becomes one accusation: validators burn the last pay, their silence does not."""

from dataclasses import dataclass
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from sqlalchemy import select

from contracts import calls, stakes
from contracts.rpc import call_json_rpc
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Ruling
from gradmarket.market.money import TokenUnit
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import AccusationState, Address, Amount, Digest, Hash
from gradmarket.market.views.payment_views import VestView
from requester.features.ledger import statement
from requester.features.stakes import accusations
from requester.features.stakes.accusations import Accusation
from requester.features.vesting import VestingFeature
from requester.store.tables import Job, JobEvent, Replica, Task, Transaction
from tests.chain.chain_fixture import PRICE, ChainFixture
from tests.onchain import HOUR, NewKey, with_money

BOND, PRICES, EARNED, WINDOW, RULING = 5, 2, 5, 4 * HOUR, 6 * HOUR
LOCKED = PRICES * PRICE
WRONG, RIGHT = Digest("blake3:" + "aa" * 32), Digest("blake3:" + "bb" * 32)


@dataclass
class VestCourt:
    """A job whose last two prices vest, on a chain of its own, with a worker that earned five."""

    chain_fixture: ChainFixture
    job: str
    worker: PrivateKey
    judge: PrivateKey

    @property
    def market(self) -> Address:
        return self.chain_fixture.chain.market

    @property
    def chain_job(self) -> int:
        return self.chain_fixture.job(self.job).chain_job or 0

    def send(self, key: PrivateKey, call: calls.Call) -> None:
        require_receipt(execute_call(self.chain_fixture.ledger.web3, key, call))

    def works(self) -> None:
        """Earns five gradients, and redeems them at once."""
        worker = self.chain_fixture.joins(self.job, self.worker)
        self.chain_fixture.settle_down()
        self.chain_fixture.earns(self.job, worker, EARNED)
        self.chain_fixture.settle_down()
        self.redeems()

    def redeems(self) -> None:
        voucher, signature = self.chain_fixture.voucher(self.job, address_of(self.worker))
        payer = with_money(self.chain_fixture.ledger, self.judge)
        self.send(payer, calls.redeem(self.market, voucher, signature))

    def audit_fails(self, tasks: int = 1) -> None:
        """As audits.audit does, of so many tasks."""
        with self.chain_fixture.chain.begin() as work:
            job, now = work.get_one(Job, self.job), self.chain_fixture.clock()
            rows = select(Task).where(Task.job_id == self.job).order_by(Task.id).limit(tasks)
            for task in work.session.scalars(rows).all():
                replica = work.session.scalars(select(Replica).where(Replica.task_id == task.id)).one()
                replica.sealed, replica.root = Hash(b"\x01" * 32), WRONG
                accusations.create_accusations(work, job, task, [replica], RIGHT, now, calls.vested_case_id)
        self.chain_fixture.settle_down()

    def accusation(self) -> Accusation:
        with self.chain_fixture.chain.reading() as reader:
            return reader.session.scalars(select(Accusation)).one()

    def passes(self, seconds: int) -> None:
        call_json_rpc(self.chain_fixture.ledger.web3, "evm_increaseTime", hex(seconds))
        call_json_rpc(self.chain_fixture.ledger.web3, "evm_mine")
        self.chain_fixture.settle_down()

    def rule(self, guilty: bool) -> None:
        case, ledger = Hash(self.accusation().case), self.chain_fixture.ledger
        ruling = Ruling(case, Amount(int(self.accusation().amount)), guilty)
        signed = sign_digest(self.judge, digest_struct(ledger.domain(), ruling))
        judge = with_money(ledger, self.judge)
        self.send(judge, calls.decide(self.market, case, guilty, [address_of(judge)], 1, [signed]))
        self.chain_fixture.settle_down()

    def collects(self) -> int:
        ledger, me = self.chain_fixture.ledger, address_of(self.worker)
        self.send(with_money(ledger, self.judge), calls.collect(self.market, self.chain_job, me))
        return ledger.balance(me)

    def told(self) -> VestView:
        """What the job's view has of its vest."""
        with self.chain_fixture.chain.reading() as reader:
            view = VestingFeature().describe_job(reader, reader.get_one(Job, self.job))["vest"]
        assert isinstance(view, VestView)
        return view

    def sent(self, kind: str) -> list[Any]:
        return self.chain_fixture.all(Transaction, Transaction.kind == kind)


@pytest.fixture
def court(own_ledger: Any, new_till: Any, new_key: NewKey) -> VestCourt:
    chain_fixture, judge = new_till(on=own_ledger), new_key()
    terms = {"prices": PRICES, "window_s": WINDOW, "validators": [address_of(judge)], "decide_s": RULING}
    job = chain_fixture.new_job(audit={"probability": 1.0}, vesting=terms | {"bond": str(BOND)})
    chain_fixture.settle_down()
    return VestCourt(chain_fixture, job, new_key(), judge)


def test_the_job_opens_with_its_vest_and_the_last_prices_wait(court: VestCourt) -> None:
    court.works()
    job, me = court.chain_fixture.ledger.job(court.chain_job), address_of(court.worker)
    assert (job.vest, job.vest_window, job.decision_window) == (LOCKED, WINDOW, RULING)
    assert job.vest_quorum == calls.quorum_of([address_of(court.judge)], 1)
    assert court.chain_fixture.ledger.balance(me) == (EARNED - PRICES) * PRICE
    court.passes(WINDOW + 1)
    assert court.collects() == EARNED * PRICE


def test_a_ruling_burns_what_is_locked_and_the_books_balance(court: VestCourt) -> None:
    court.works()
    assert court.told() == VestView(locked=str(LOCKED), window_s=WINDOW, accused="0", burnt="0", failed=0)
    court.audit_fails()
    row = court.accusation()
    assert (row.state, row.amount) == (AccusationState.CONTESTED, str(LOCKED))
    assert (court.told().accused, court.told().burnt) == (str(LOCKED), "0")
    court.rule(guilty=True)
    assert (court.told().accused, court.told().burnt) == ("0", str(LOCKED))
    assert court.accusation().state == AccusationState.SLASHED
    assert stakes.to_burn(court.chain_fixture.ledger) == LOCKED
    assert len(court.sent("accuse")) == 1
    court.passes(WINDOW + 1)
    assert court.collects() == (EARNED - PRICES) * PRICE
    with court.chain_fixture.chain.reading() as reader:
        promised = statement.load_promises(reader, court.chain_fixture.job(court.job))
    figures = statement.fetch_figures(court.chain_fixture.ledger, promised)
    entries = statement.list_ledger_entries(court.chain_fixture.ledger, promised, figures.block.number, figures)  # type: ignore[union-attr]
    assert statement.compare_with_contract(entries, figures) == []
    assert [(str(one.kind), one.units) for one in entries if one.kind == "burnt"] == [("burnt", LOCKED)]


def test_a_second_fault_waits_for_pay_that_no_case_claims(court: VestCourt) -> None:
    court.works()
    court.audit_fails(tasks=2)
    with court.chain_fixture.chain.reading() as reader:
        first, second = reader.session.scalars(select(Accusation).order_by(Accusation.state)).all()
    assert (first.state, second.state) == (AccusationState.CONTESTED, AccusationState.DUE)
    assert len(court.sent("accuse")) == 1
    assert court.chain_fixture.all(JobEvent, JobEvent.kind == "accuse_refused") == []


def test_an_acquittal_costs_the_requester_its_bond_and_the_worker_nothing(court: VestCourt) -> None:
    court.works()
    court.audit_fails()
    court.rule(guilty=False)
    assert court.accusation().state == AccusationState.ACQUITTED
    assert stakes.to_burn(court.chain_fixture.ledger) == BOND
    told = court.told()
    assert (told.accused, told.burnt, told.failed) == ("0", "0", 1)
    assert told.text(TokenUnit("GRAD", 0)) == (
        f"{LOCKED} GRAD of each worker's pay at most, 4 h after its last credit; accusations that failed: 1"
    )
    court.passes(WINDOW + 1)
    assert court.collects() == EARNED * PRICE


def test_validators_that_stay_silent_burn_the_bond_alone(court: VestCourt) -> None:
    court.works()
    court.audit_fails()
    court.passes(RULING + 2)
    assert court.accusation().state == AccusationState.ACQUITTED
    assert stakes.to_burn(court.chain_fixture.ledger) == BOND
    assert court.collects() == EARNED * PRICE


def test_nothing_is_accused_before_it_is_credited(court: VestCourt) -> None:
    worker = court.chain_fixture.joins(court.job, court.worker)
    court.chain_fixture.settle_down()
    court.chain_fixture.earns(court.job, worker, EARNED)
    court.audit_fails()
    assert court.accusation().state == AccusationState.DUE
    court.redeems()
    court.chain_fixture.settle_down()
    assert court.accusation().state == AccusationState.CONTESTED


def test_who_was_never_credited_is_accused_of_nothing(court: VestCourt) -> None:
    court.chain_fixture.joins(court.job, court.worker)
    court.chain_fixture.earns(court.job, address_of(court.worker))
    court.audit_fails()
    court.passes(60 * 24 * HOUR)
    assert court.accusation().state == AccusationState.VOID
    assert court.sent("accuse") == []


def test_a_stake_s_accusations_leave_locked_pay_alone(court: VestCourt) -> None:
    court.works()
    court.audit_fails()
    me = address_of(court.worker)
    assert stakes.exposure(court.chain_fixture.ledger, court.chain_job, me).accused == 0
    assert court.chain_fixture.ledger.due(court.chain_job, me) == 0
