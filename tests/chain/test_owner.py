"""Money whose owner's key is elsewhere, on a chain that is not local: the service says what to sign, and looks."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from onchain import DEPLOYER, ETHER, NewKey
from till import BUDGET, PRICE, Till

from gradmarket.contracts import calls
from gradmarket.contracts.deployment import deploy
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import LocalChain
from gradmarket.contracts.rpc import LOCAL_CHAIN_IDS, request
from gradmarket.contracts.transactions import Receipt, execute, mined
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, AuditState, JobState, Units
from gradmarket.requester.chain import funding, reconcile
from gradmarket.requester.chain.office import Office
from gradmarket.requester.store.tables import Transaction

CHAIN_ID = 4242
NOBODY = "0x000000000000000000000000000000000000dEaD"


@pytest.fixture(scope="module")
def abroad() -> Iterator[Ledger]:
    """A chain whose money the service may not make."""
    chain = LocalChain.start(None, chain_id=CHAIN_ID)
    web3 = chain.connect()
    yield Ledger(web3, deploy(web3, DEPLOYER))
    chain.stop()


@pytest.fixture
def owner(abroad: Ledger, new_key: NewKey) -> PrivateKey:
    key = new_key()
    rich(abroad, address_of(key))
    mint = calls.mint(abroad.deployment.token, address_of(key), Amount(100 * BUDGET))
    mined(execute(abroad.web3, DEPLOYER, mint))
    return key


@pytest.fixture
def till(abroad: Ledger, owner: PrivateKey, new_key: NewKey, tmp_path: Path) -> Iterator[Till]:
    made = Till(tmp_path, abroad, new_key)
    made.desk = replace(made.desk, owner=address_of(owner), grant=None)
    made.office = Office(made.desk)
    rich(abroad, made.desk.sender)
    yield made
    made.close()


def rich(ledger: Ledger, who: Address) -> None:
    request(ledger.web3, "anvil_setBalance", who, hex(ETHER))


def signs(till: Till, owner: PrivateKey, job_id: str, added: int = 0) -> list[str]:
    """The owner signs all that it is asked to; what that was."""
    asked = till.office.to_sign(till.job(job_id), Units(added))
    for each in asked:
        assert (each.owner, each.chain_id) == (address_of(owner), CHAIN_ID)
        mined(execute(till.ledger.web3, owner, each.call))
    return [each.purpose for each in asked]


def running(till: Till, owner: PrivateKey) -> str:
    job_id = till.new_job()
    till.settle_down()
    assert signs(till, owner, job_id) == ["approve", "openJob"]
    till.settle_down()
    assert "setSender" in till.job(job_id).reason
    assert signs(till, owner, job_id) == ["setSender"]
    till.settle_down()
    assert till.job(job_id).state == JobState.RUNNING
    return job_id


def test_a_job_waits_for_its_owner_and_starts_when_it_signed(till: Till, owner: PrivateKey) -> None:
    assert CHAIN_ID not in LOCAL_CHAIN_IDS
    job_id = till.new_job()
    till.settle_down()
    assert till.job(job_id).state == JobState.AWAITING_FUNDS
    assert f"waits for {address_of(owner)} to sign openJob" in till.job(job_id).reason
    job_id = running(till, owner)
    chain = till.ledger.job(till.job(job_id).chain_job or 0)
    assert (chain.requester, chain.sender, chain.deposited) == (address_of(owner), till.desk.sender, BUDGET)
    assert till.all(Transaction) == []
    assert till.ledger.allowance(address_of(owner)) == 0


def test_the_service_reserves_and_settles_what_it_does_not_own(till: Till, owner: PrivateKey, new_key: NewKey) -> None:
    job_id, key = running(till, owner), new_key()
    worker = till.joins(job_id, key)
    till.settle_down()
    till.earns(job_id, worker, 3)
    till.clock.now += till.policy.settle_every_s
    till.settle_down()
    chain_job = till.job(job_id).chain_job or 0
    assert till.ledger.account(chain_job, worker).settled == 3 * PRICE
    assert signs(till, owner, job_id, added=500) == ["approve", "topUp"]
    till.set_job(job_id, budget=BUDGET + 500)
    till.settle_down()
    assert till.job(job_id).deposited == BUDGET + 500
    till.set_job(job_id, state=JobState.FINISHED)
    till.settle_down()
    assert till.ledger.free(chain_job) > 0, "the service takes nothing out"
    till.audits(job_id, AuditState.DUE)
    assert signs(till, owner, job_id) == [], "an audit that fails may pay from it"
    till.audits(job_id, AuditState.PASSED)
    assert signs(till, owner, job_id) == ["withdrawFree"]
    till.settle_down()
    assert (till.ledger.free(chain_job), signs(till, owner, job_id)) == (0, [])
    assert reconcile.differences(till.desk, job_id) == []


def test_what_waits_for_its_owner_does_not_keep_the_office_awake(till: Till, owner: PrivateKey) -> None:
    """What an owner does is in a block, and a block wakes it."""
    till.office = Office(till.desk, threading.Event())
    till.new_job()
    till.settle_down()
    assert not till.office.wanted()
    job_id = running(till, owner)
    till.set_job(job_id, budget=BUDGET + 500)
    till.settle_down()
    assert not till.office.wanted()
    assert signs(till, owner, job_id) == ["approve", "topUp"]
    assert till.office.wanted()


def opened_otherwise(till: Till, owner: PrivateKey, job_id: str, **changes: object) -> Receipt:
    terms = replace(funding.terms(till.desk, till.job(job_id)), **changes)  # type: ignore[arg-type]
    place = till.ledger.deployment
    mined(execute(till.ledger.web3, owner, calls.approve(place.token, place.contract, Amount(10**30))))
    return mined(execute(till.ledger.web3, owner, calls.open_job(place.contract, terms)))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"amount": BUDGET - 1}, "deposit 9999 instead of 10000 units"),
        ({"unit": 2}, "unit 2 instead of 1"),
        ({"voucher_signer": NOBODY}, f"voucher signer {NOBODY}"),
        ({"endpoint": "http://elsewhere"}, "endpoint 'http://elsewhere'"),
        ({"slash_window": 60, "contest_window": 60, "decision_window": 60, "bond": 1}, "slash terms"),
    ],
)  # fmt: skip
def test_a_job_that_is_opened_under_other_terms_is_refused_by_name(
    till: Till, owner: PrivateKey, changes: dict[str, object], named: str
) -> None:
    job_id = till.new_job()
    till.settle_down()
    opened_otherwise(till, owner, job_id, **changes)
    till.settle_down()
    job = till.job(job_id)
    assert (job.state, job.chain_job) == (JobState.AWAITING_FUNDS, None)
    assert named in job.reason
    assert "openJob" in signs(till, owner, job_id)
    assert signs(till, owner, job_id) == ["setSender"]
    till.settle_down()
    assert till.job(job_id).state == JobState.RUNNING


def test_a_budget_raised_after_the_deposit_was_signed_asks_for_the_rest(till: Till, owner: PrivateKey) -> None:
    job_id = till.new_job()
    till.settle_down()
    assert signs(till, owner, job_id) == ["approve", "openJob"]
    till.set_job(job_id, budget=BUDGET + 500)
    till.settle_down()
    assert signs(till, owner, job_id) == ["setSender"]
    till.settle_down()
    assert till.job(job_id).state == JobState.RUNNING
    assert signs(till, owner, job_id) == ["approve", "topUp"]
    till.settle_down()
    assert till.job(job_id).deposited == BUDGET + 500


def test_times_that_leave_too_little_are_refused_by_name(till: Till, owner: PrivateKey) -> None:
    job_id = till.new_job()
    till.settle_down()
    terms = funding.terms(till.desk, till.job(job_id))
    soon = till.ledger.block().time + 60
    opened_otherwise(till, owner, job_id, expiry=soon, claim_until=soon + 3600)
    till.settle_down()
    assert f"expiry {soon} before" in till.job(job_id).reason
    opened_otherwise(till, owner, job_id, claim_until=terms.expiry + 100)
    till.settle_down()
    assert "claim window too short" in till.job(job_id).reason


def test_another_s_job_under_the_same_specification_is_not_the_owner_s(
    till: Till, owner: PrivateKey, abroad: Ledger, new_key: NewKey
) -> None:
    thief, job_id = new_key(), till.new_job()
    rich(abroad, address_of(thief))
    mined(execute(abroad.web3, DEPLOYER, calls.mint(abroad.deployment.token, address_of(thief), Amount(10 * BUDGET))))
    till.settle_down()
    opened_otherwise(till, thief, job_id)
    till.settle_down()
    assert till.job(job_id).state == JobState.AWAITING_FUNDS
