"""The ledger of a real job: it adds up to the contract's figures at every stage, and lists differences."""

import pytest

from contracts import claims
from contracts.ledger import Ledger
from contracts.local import fund_gas
from contracts.rpc import call_json_rpc
from contracts.transactions import require_receipt
from gradmarket.market.features.ledger import LedgerEntry, compute_balances
from gradmarket.market.terms import JobState, Units
from gradmarket.market.views.payment_views import EntryKind
from requester.features.ledger import statement
from requester.store.tables import Earned
from tests.chain.chain_fixture import BUDGET, PRICE, ChainFixture, busy
from tests.lanes import FULL, leave_to_full
from tests.onchain import ETHER, NewKey


def load_statement(chain_fixture: ChainFixture, job_id: str) -> tuple[list[LedgerEntry], list[str]]:
    with chain_fixture.chain.reading() as reader:
        promised = statement.load_promises(reader, chain_fixture.job(job_id))
    found = statement.fetch_figures(chain_fixture.ledger, promised)
    moves = statement.list_ledger_entries(
        chain_fixture.ledger, promised, found.block.number if found.block else None, found
    )
    return moves, statement.compare_with_contract(moves, found)


def units(moves: list[LedgerEntry], kind: EntryKind) -> int:
    return sum(move.units for move in moves if move.kind is kind)


def test_before_the_deposit_nothing_was_moved(chain_fixture: ChainFixture) -> None:
    assert load_statement(chain_fixture, chain_fixture.new_job()) == ([], [])


def test_from_the_deposit_to_the_last_release_it_adds_up(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, key = chain_fixture.running_job(), new_key()
    worker = chain_fixture.joins(job_id, key)
    chain_fixture.settle_down()
    chain_fixture.earns(job_id, worker, 3)
    moves, differ = load_statement(chain_fixture, job_id)
    assert differ == []
    assert (units(moves, EntryKind.EARNED), units(moves, EntryKind.SETTLED)) == (3 * PRICE, 0)
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    chain_fixture.settle_down()
    chain_fixture.set_job(job_id, state=JobState.FINISHED)
    chain_fixture.settle_down()
    fund_gas(chain_fixture.ledger.web3, worker, ETHER)
    require_receipt(claims.redeem(chain_fixture.ledger, key, *chain_fixture.voucher(job_id, worker)))
    require_receipt(claims.release(chain_fixture.ledger, key, chain_fixture.job(job_id).chain_job or 0, Units(0)))
    chain_fixture.settle_down()
    moves, differ = load_statement(chain_fixture, job_id)
    assert differ == []
    assert units(moves, EntryKind.DEPOSIT) == BUDGET
    assert units(moves, EntryKind.SETTLED) == units(moves, EntryKind.REDEEMED) == 3 * PRICE
    assert units(moves, EntryKind.REFUND) == BUDGET - 3 * PRICE
    left = {name: sum_ for name, sum_ in compute_balances(moves).items() if sum_}
    assert left.keys() == {"gradients", "requester", "promised", f"settled:{worker}"}
    settled = next(move for move in moves if move.kind is EntryKind.SETTLED)
    assert (settled.cause.batch, settled.cause.tx is None, settled.cause.block is None) == (0, False, False)


@FULL
def test_pay_that_lapses_at_the_end_of_all_claims_is_an_entry(
    own_till: ChainFixture, own_ledger: Ledger, new_key: NewKey
) -> None:
    job_id, worker = busy(own_till, new_key)
    own_till.settle_down()
    own_till.set_job(job_id, state=JobState.FINISHED)
    own_till.settle_down()
    job = own_till.job(job_id)
    call_json_rpc(own_ledger.web3, "evm_setNextBlockTimestamp", (job.claim_until or 0) + 1)
    call_json_rpc(own_ledger.web3, "evm_mine")
    own_till.clock.now = float(job.claim_until or 0) + 2
    own_till.settle_down()
    moves, differ = load_statement(own_till, job_id)
    assert differ == []
    assert units(moves, EntryKind.LAPSED) > 0
    assert compute_balances(moves)[f"reserved:{worker}"] == 7 * PRICE


@pytest.mark.parametrize("change", leave_to_full(["forgotten", "invented"]))
def test_the_statement_lists_differing_books(chain_fixture: ChainFixture, new_key: NewKey, change: str) -> None:
    job_id, _ = busy(chain_fixture, new_key)
    chain_fixture.settle_down()
    with chain_fixture.chain.begin() as work:
        for row in work.session.query(Earned).filter_by(job_id=job_id):
            row.units = PRICE // 2 if change == "forgotten" else row.units
    if change == "invented":
        chain_fixture.restart(Ledger(chain_fixture.ledger.web3, chain_fixture.ledger.deployment))
        chain_fixture.set_job(job_id, chain_job=1 if chain_fixture.job(job_id).chain_job != 1 else 2)
    assert load_statement(chain_fixture, job_id)[1]
