"""A failed audit of a job that vests becomes one accusation: validators burn the last pay, their silence does not."""

from typing import Any

import pytest
from sqlalchemy import select

from contracts import calls, stakes
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from gradmarket.market.messages import Ruling
from gradmarket.market.money import TokenUnit
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import AccusationState, Amount, Hash
from gradmarket.market.views.payment_views import VestView
from requester.features.ledger import statement
from requester.features.stakes.accusations import Accusation
from requester.features.vesting import VestingFeature
from requester.store.tables import Job, JobEvent
from tests.chain.chain_fixture import PRICE
from tests.features.stakes.court import BOND, Court
from tests.kit.contract_calls import to_burn
from tests.lanes import FULL
from tests.onchain import HOUR, NewKey, with_money

PRICES, EARNED, WINDOW, RULING = 2, 5, 4 * HOUR, 6 * HOUR
LOCKED = PRICES * PRICE


class VestCourt(Court):
    """The job's last two prices vest, and the worker earned five."""

    def works(self) -> None:
        """Earns five gradients, and redeems them at once."""
        worker = self.chain_fixture.joins(self.job, self.worker)
        self.chain_fixture.settle_down()
        self.chain_fixture.earns(self.job, worker, EARNED)
        self.chain_fixture.settle_down()
        self.redeems()

    def redeems(self) -> None:
        voucher, signature = self.chain_fixture.voucher(self.job, address_of(self.worker))
        self.send(self.judge, calls.redeem(self.market, voucher, signature))

    def audit_fails(self, tasks: int = 1, first: int = 0) -> None:
        super().audit_fails(tasks, first)
        self.chain_fixture.settle_down()

    def collects(self) -> int:
        me = address_of(self.worker)
        self.send(self.judge, calls.collect(self.market, self.chain_job, me))
        return self.ledger.balance(me)

    def states(self) -> list[AccusationState]:
        """Of the accusations, in the order of their tasks."""
        with self.chain_fixture.chain.reading() as reader:
            return list(reader.session.scalars(select(Accusation.state).order_by(Accusation.task_id)))

    def load_view(self) -> VestView:
        """Returns the vest of the job's view."""
        with self.chain_fixture.chain.reading() as reader:
            view = VestingFeature().describe_job(reader, reader.get_one(Job, self.job))["vest"]
        assert isinstance(view, VestView)
        return view


@pytest.fixture
def court(own_ledger: Ledger, new_till: Any, new_key: NewKey) -> VestCourt:
    terms = {"prices": PRICES, "window_s": WINDOW, "decide_s": RULING}
    return VestCourt.opened(own_ledger, new_till, new_key, "vesting", terms)


@FULL
def test_the_job_opens_with_its_vest_and_the_last_prices_wait(court: VestCourt) -> None:
    court.works()
    job, me = court.ledger.job(court.chain_job), address_of(court.worker)
    assert (job.vest, job.vest_window, job.decision_window) == (LOCKED, WINDOW, RULING)
    assert job.vest_quorum == calls.quorum_of([address_of(court.judge)], 1)
    assert court.ledger.balance(me) == (EARNED - PRICES) * PRICE
    court.passes(WINDOW + 1)
    assert court.collects() == EARNED * PRICE


def test_a_ruling_burns_what_is_locked_and_the_books_balance(court: VestCourt) -> None:
    court.works()
    assert court.load_view() == VestView(locked=str(LOCKED), window_s=WINDOW, accused="0", burnt="0", failed=0)
    court.audit_fails()
    row = court.accusation()
    assert (row.state, row.amount) == (AccusationState.CONTESTED, str(LOCKED))
    assert (court.load_view().accused, court.load_view().burnt) == (str(LOCKED), "0")
    court.rule(guilty=True)
    assert (court.load_view().accused, court.load_view().burnt) == ("0", str(LOCKED))
    assert court.state == AccusationState.SLASHED
    assert court.burnt == LOCKED
    assert len(court.sent("accuse")) == 1
    court.passes(WINDOW + 1)
    assert court.collects() == (EARNED - PRICES) * PRICE
    with court.chain_fixture.chain.reading() as reader:
        promised = statement.load_promises(reader, court.chain_fixture.job(court.job))
    figures = statement.fetch_figures(court.ledger, promised)
    entries = statement.list_ledger_entries(court.ledger, promised, figures.block.number, figures)  # type: ignore[union-attr]
    assert statement.compare_with_contract(entries, figures) == []
    assert [(str(one.kind), one.units) for one in entries if one.kind == "burnt"] == [("burnt", LOCKED)]


@FULL
def test_a_second_fault_waits_for_pay_that_no_case_claims(court: VestCourt) -> None:
    court.works()
    court.audit_fails(tasks=2)
    with court.chain_fixture.chain.reading() as reader:
        first, second = reader.session.scalars(select(Accusation).order_by(Accusation.state)).all()
    assert (first.state, second.state) == (AccusationState.CONTESTED, AccusationState.DUE)
    assert len(court.sent("accuse")) == 1
    assert court.chain_fixture.all(JobEvent, JobEvent.kind == "accuse_refused") == []


@FULL
def test_an_acquittal_costs_the_requester_its_bond_and_the_worker_nothing(court: VestCourt) -> None:
    court.works()
    court.audit_fails()
    court.rule(guilty=False)
    assert court.state == AccusationState.ACQUITTED
    assert court.burnt == BOND
    told = court.load_view()
    assert (told.accused, told.burnt, told.failed) == ("0", "0", 1)
    assert told.text(TokenUnit("GRAD", 0)) == (
        f"{LOCKED} GRAD of each worker's pay at most, 4 h after its last credit; accusations that failed: 1"
    )
    court.passes(WINDOW + 1)
    assert court.collects() == EARNED * PRICE


@FULL
def test_validators_that_stay_silent_burn_the_bond_alone(court: VestCourt) -> None:
    court.works()
    court.audit_fails()
    court.passes(RULING + 2)
    assert court.state == AccusationState.ACQUITTED
    assert court.burnt == BOND
    assert court.collects() == EARNED * PRICE


@FULL
def test_where_a_case_of_a_worker_failed_its_later_pay_costs_no_further_bond(court: VestCourt) -> None:
    court.works()
    court.audit_fails()
    court.rule(guilty=False)
    court.chain_fixture.earns(court.job, address_of(court.worker), EARNED)
    court.redeems()
    court.audit_fails(first=1)
    assert court.states() == [AccusationState.ACQUITTED, AccusationState.VOID]
    assert len(court.sent("accuse")) == 1
    assert to_burn(court.ledger) == BOND


@FULL
def test_a_case_that_is_posted_while_another_of_the_worker_fails_is_followed_to_its_end(court: VestCourt) -> None:
    """Dropped, it would be closed by nobody once it is mined, and hold the worker's pay and the bond."""
    court.works()
    court.audit_fails(first=1)
    case, judges = Hash(court.accusation().case), [address_of(court.judge)]
    ruling = Ruling(case, Amount(int(court.accusation().amount)), False)
    signed = sign_digest(court.judge, digest_struct(court.ledger.domain(), ruling))
    court.send(court.judge, calls.decide(court.market, case, False, judges, 1, [signed]))
    with_money(court.ledger, court.chain_fixture.key)
    Court.audit_fails(court)
    call_json_rpc(court.ledger.web3, "evm_setAutomine", False)
    court.chain_fixture.settle_down()
    assert court.states() == [AccusationState.DUE, AccusationState.ACQUITTED]
    call_json_rpc(court.ledger.web3, "evm_setAutomine", True)
    court.passes(1)
    assert court.states() == [AccusationState.CONTESTED, AccusationState.ACQUITTED]
    court.passes(RULING + 2)
    assert court.states() == [AccusationState.ACQUITTED, AccusationState.ACQUITTED]
    assert (len(court.sent("accuse")), court.burnt) == (2, 2 * BOND)


@FULL
def test_nothing_is_accused_before_it_is_credited(court: VestCourt) -> None:
    worker = court.chain_fixture.joins(court.job, court.worker)
    court.chain_fixture.settle_down()
    court.chain_fixture.earns(court.job, worker, EARNED)
    court.audit_fails()
    assert court.state == AccusationState.DUE
    court.redeems()
    court.chain_fixture.settle_down()
    assert court.state == AccusationState.CONTESTED


def test_a_worker_without_credited_pay_is_not_accused(court: VestCourt) -> None:
    court.chain_fixture.joins(court.job, court.worker)
    court.chain_fixture.earns(court.job, address_of(court.worker))
    court.audit_fails()
    court.passes(60 * 24 * HOUR)
    assert court.state == AccusationState.VOID
    assert court.sent("accuse") == []


@FULL
def test_a_stake_s_accusations_leave_locked_pay_alone(court: VestCourt) -> None:
    court.works()
    court.audit_fails()
    me = address_of(court.worker)
    assert stakes.exposure(court.ledger, court.chain_job, me).accused == 0
    assert court.ledger.due(court.chain_job, me) == 0
