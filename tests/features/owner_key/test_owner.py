"""Money whose owner's key is elsewhere, on a chain that is not local: the service lists calls to sign, and looks."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls
from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import LOCAL_CHAIN_IDS, call_json_rpc
from contracts.transaction_types import Receipt
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, JobState, Units
from requester.chain import funding
from requester.chain.chain_worker import ChainWorker
from requester.features.owner_key import KeyElsewhere
from requester.store.tables import Transaction
from tests.chain.chain_differences import list_chain_differences
from tests.chain.chain_fixture import BUDGET, PRICE, ChainFixture
from tests.lanes import FULL, leave_to_full
from tests.onchain import DEPLOYER, ETHER, NewKey

CHAIN_ID = 4242
NOBODY = "0x000000000000000000000000000000000000dEaD"


@pytest.fixture(scope="module")
def abroad() -> Iterator[Ledger]:
    """A chain whose money the service may not make."""
    chain = LocalChain.start(None, chain_id=CHAIN_ID)
    web3 = chain.connect()
    yield Ledger(web3, deploy_market(web3, DEPLOYER))
    chain.stop()


@pytest.fixture
def owner(abroad: Ledger, new_key: NewKey) -> PrivateKey:
    key = new_key()
    rich(abroad, address_of(key))
    mint = calls.mint(abroad.deployment.token, address_of(key), Amount(100 * BUDGET))
    require_receipt(execute_call(abroad.web3, DEPLOYER, mint))
    return key


@pytest.fixture
def chain_fixture(abroad: Ledger, owner: PrivateKey, new_key: NewKey, tmp_path: Path) -> Iterator[ChainFixture]:
    made = ChainFixture(tmp_path, abroad, new_key)
    made.chain = replace(made.chain, owner=address_of(owner), elsewhere=KeyElsewhere(), grant=None)
    made.chain_worker = ChainWorker(made.chain)
    rich(abroad, made.chain.sender)
    yield made
    made.close()


def rich(ledger: Ledger, who: Address) -> None:
    call_json_rpc(ledger.web3, "anvil_setBalance", who, hex(ETHER))


def signs(chain_fixture: ChainFixture, owner: PrivateKey, job_id: str, added: int = 0) -> list[str]:
    """Signs all listed calls by the owner; returns their purposes."""
    asked = chain_fixture.chain_worker.to_sign(chain_fixture.job(job_id), Units(added))
    for each in asked:
        assert (each.owner, each.chain_id) == (address_of(owner), CHAIN_ID)
        require_receipt(execute_call(chain_fixture.ledger.web3, owner, each.call))
    return [each.purpose for each in asked]


def running(chain_fixture: ChainFixture, owner: PrivateKey) -> str:
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    assert signs(chain_fixture, owner, job_id) == ["approve", "openJob"]
    chain_fixture.settle_down()
    assert "setSender" in chain_fixture.job(job_id).reason
    assert signs(chain_fixture, owner, job_id) == ["setSender"]
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.RUNNING
    return job_id


def test_a_job_waits_for_its_owner_and_starts_when_it_signed(chain_fixture: ChainFixture, owner: PrivateKey) -> None:
    assert CHAIN_ID not in LOCAL_CHAIN_IDS
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.AWAITING_FUNDS
    assert f"waits for {address_of(owner)} to sign openJob" in chain_fixture.job(job_id).reason
    job_id = running(chain_fixture, owner)
    chain = chain_fixture.ledger.job(chain_fixture.job(job_id).chain_job or 0)
    assert (chain.requester, chain.sender, chain.deposited) == (address_of(owner), chain_fixture.chain.sender, BUDGET)
    assert chain_fixture.all(Transaction) == []
    assert chain_fixture.ledger.allowance(address_of(owner)) == 0


def test_the_service_reserves_and_settles_what_it_does_not_own(
    chain_fixture: ChainFixture, owner: PrivateKey, new_key: NewKey
) -> None:
    job_id, key = running(chain_fixture, owner), new_key()
    worker = chain_fixture.joins(job_id, key)
    chain_fixture.settle_down()
    chain_fixture.earns(job_id, worker, 3)
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    chain_fixture.settle_down()
    chain_job = chain_fixture.job(job_id).chain_job or 0
    assert chain_fixture.ledger.account(chain_job, worker).settled == 3 * PRICE
    assert signs(chain_fixture, owner, job_id, added=500) == ["approve", "topUp"]
    chain_fixture.set_job(job_id, budget=BUDGET + 500)
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).deposited == BUDGET + 500
    chain_fixture.set_job(job_id, state=JobState.FINISHED)
    chain_fixture.settle_down()
    assert chain_fixture.ledger.free(chain_job) > 0, "the service takes nothing out"
    assert signs(chain_fixture, owner, job_id) == ["withdrawFree"]
    chain_fixture.settle_down()
    assert (chain_fixture.ledger.free(chain_job), signs(chain_fixture, owner, job_id)) == (0, [])
    assert list_chain_differences(chain_fixture.chain, job_id) == []


@FULL
def test_calls_that_wait_for_the_owner_do_not_keep_the_chain_worker_awake(
    chain_fixture: ChainFixture, owner: PrivateKey
) -> None:
    """An owner's act is in a block, and a block wakes the chain worker."""
    chain_fixture.chain_worker = ChainWorker(chain_fixture.chain, threading.Event())
    chain_fixture.new_job()
    chain_fixture.settle_down()
    assert not chain_fixture.chain_worker.wanted()
    job_id = running(chain_fixture, owner)
    chain_fixture.set_job(job_id, budget=BUDGET + 500)
    chain_fixture.settle_down()
    assert not chain_fixture.chain_worker.wanted()
    assert signs(chain_fixture, owner, job_id) == ["approve", "topUp"]
    assert chain_fixture.chain_worker.wanted()


def opened_otherwise(chain_fixture: ChainFixture, owner: PrivateKey, job_id: str, **changes: object) -> Receipt:
    terms = replace(funding.compute_job_terms(chain_fixture.chain, chain_fixture.job(job_id)), **changes)  # type: ignore[arg-type]
    place = chain_fixture.ledger.deployment
    require_receipt(
        execute_call(chain_fixture.ledger.web3, owner, calls.approve(place.token, place.contract, Amount(10**30)))
    )
    return require_receipt(execute_call(chain_fixture.ledger.web3, owner, calls.open_job(place.contract, terms)))


@pytest.mark.parametrize(
    ("changes", "named"),
    leave_to_full([
        ({"amount": BUDGET - 1}, "deposit 9999 instead of 10000 units"),
        ({"unit": 2}, "unit 2 instead of 1"),
        ({"voucher_signer": NOBODY}, f"voucher signer {NOBODY}"),
        ({"endpoint": "http://elsewhere"}, "endpoint 'http://elsewhere'"),
        ({"slash_window": 60, "contest_window": 60, "decision_window": 60, "bond": 1}, "slash terms"),
    ], 2),
)  # fmt: skip
def test_a_job_that_is_opened_under_other_terms_is_refused_by_name(
    chain_fixture: ChainFixture, owner: PrivateKey, changes: dict[str, object], named: str
) -> None:
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    opened_otherwise(chain_fixture, owner, job_id, **changes)
    chain_fixture.settle_down()
    job = chain_fixture.job(job_id)
    assert (job.state, job.chain_job) == (JobState.AWAITING_FUNDS, None)
    assert named in job.reason
    assert "openJob" in signs(chain_fixture, owner, job_id)
    assert signs(chain_fixture, owner, job_id) == ["setSender"]
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.RUNNING


@FULL
def test_a_budget_raised_after_the_deposit_was_signed_asks_for_the_rest(
    chain_fixture: ChainFixture, owner: PrivateKey
) -> None:
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    assert signs(chain_fixture, owner, job_id) == ["approve", "openJob"]
    chain_fixture.set_job(job_id, budget=BUDGET + 500)
    chain_fixture.settle_down()
    assert signs(chain_fixture, owner, job_id) == ["setSender"]
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.RUNNING
    assert signs(chain_fixture, owner, job_id) == ["approve", "topUp"]
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).deposited == BUDGET + 500


def test_times_that_leave_too_little_are_refused_by_name(chain_fixture: ChainFixture, owner: PrivateKey) -> None:
    job_id = chain_fixture.new_job()
    chain_fixture.settle_down()
    terms = funding.compute_job_terms(chain_fixture.chain, chain_fixture.job(job_id))
    soon = chain_fixture.ledger.block().time + 60
    opened_otherwise(chain_fixture, owner, job_id, expiry=soon, claim_until=soon + 3600)
    chain_fixture.settle_down()
    assert f"expiry {soon} before" in chain_fixture.job(job_id).reason
    opened_otherwise(chain_fixture, owner, job_id, claim_until=terms.expiry + 100)
    chain_fixture.settle_down()
    assert "claim window too short" in chain_fixture.job(job_id).reason


def test_another_s_job_under_the_same_specification_is_not_the_owner_s(
    chain_fixture: ChainFixture, owner: PrivateKey, abroad: Ledger, new_key: NewKey
) -> None:
    thief, job_id = new_key(), chain_fixture.new_job()
    rich(abroad, address_of(thief))
    require_receipt(
        execute_call(abroad.web3, DEPLOYER, calls.mint(abroad.deployment.token, address_of(thief), Amount(10 * BUDGET)))
    )
    chain_fixture.settle_down()
    opened_otherwise(chain_fixture, thief, job_id)
    chain_fixture.settle_down()
    assert chain_fixture.job(job_id).state == JobState.AWAITING_FUNDS
