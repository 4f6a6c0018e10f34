"""The ledger of a real job: it adds up to the contract's figures at every stage, and says where it does not."""

from collections.abc import Callable

import pytest
from onchain import ETHER, NewKey
from till import BUDGET, PRICE, Till, busy

from gradmarket.contracts import claims
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import fund_gas
from gradmarket.contracts.rpc import request
from gradmarket.contracts.transactions import mined
from gradmarket.market.rules.bookkeeping import Kind, Move, balances
from gradmarket.market.terms import JobState, Units
from gradmarket.requester.chain import statement
from gradmarket.requester.store.tables import Earned


def told(till: Till, job_id: str) -> tuple[list[Move], list[str]]:
    with till.desk.reading() as session:
        promised = statement.promises(session, till.job(job_id))
    found = statement.figures(till.ledger, promised)
    moves = statement.moves(till.ledger, promised, found.block.number if found.block else None, found)
    return moves, statement.compare(moves, found)


def units(moves: list[Move], kind: Kind) -> int:
    return sum(move.units for move in moves if move.kind is kind)


def test_before_the_deposit_nothing_was_moved(till: Till) -> None:
    assert told(till, till.new_job()) == ([], [])


def test_from_the_deposit_to_the_last_release_it_adds_up(till: Till, new_key: NewKey) -> None:
    job_id, key = till.running_job(), new_key()
    worker = till.joins(job_id, key)
    till.settle_down()
    till.earns(job_id, worker, 3)
    moves, differ = told(till, job_id)
    assert differ == []
    assert (units(moves, Kind.EARNED), units(moves, Kind.SETTLED)) == (3 * PRICE, 0)
    till.clock.now += till.policy.settle_every_s
    till.settle_down()
    till.set_job(job_id, state=JobState.FINISHED)
    till.settle_down()
    fund_gas(till.ledger.web3, worker, ETHER)
    mined(claims.redeem(till.ledger, key, *till.voucher(job_id, worker)))
    mined(claims.release(till.ledger, key, till.job(job_id).chain_job or 0, Units(0)))
    till.settle_down()
    moves, differ = told(till, job_id)
    assert differ == []
    assert units(moves, Kind.DEPOSIT) == BUDGET
    assert units(moves, Kind.SETTLED) == units(moves, Kind.REDEEMED) == 3 * PRICE
    assert units(moves, Kind.REFUND) == BUDGET - 3 * PRICE
    left = {name: sum_ for name, sum_ in balances(moves).items() if sum_}
    assert left.keys() == {"gradients", "requester", "promised", f"settled:{worker}"}
    settled = next(move for move in moves if move.kind is Kind.SETTLED)
    assert (settled.cause.batch, settled.cause.tx is None, settled.cause.block is None) == (0, False, False)


def test_what_lapses_at_the_end_of_all_claims_is_an_entry(
    own_ledger: Ledger, till_on: Callable[[Ledger], Till], new_key: NewKey
) -> None:
    till = till_on(own_ledger)
    job_id, worker = busy(till, new_key)
    till.settle_down()
    till.set_job(job_id, state=JobState.FINISHED)
    till.settle_down()
    job = till.job(job_id)
    request(own_ledger.web3, "evm_setNextBlockTimestamp", (job.claim_until or 0) + 1)
    request(own_ledger.web3, "evm_mine")
    till.clock.now = float(job.claim_until or 0) + 2
    till.settle_down()
    moves, differ = told(till, job_id)
    assert differ == []
    assert units(moves, Kind.LAPSED) > 0
    assert balances(moves)[f"reserved:{worker}"] == 7 * PRICE


@pytest.mark.parametrize("change", ["forgotten", "invented"])
def test_books_that_differ_are_told(till: Till, new_key: NewKey, change: str) -> None:
    job_id, _ = busy(till, new_key)
    till.settle_down()
    with till.desk.begin() as session:
        for row in session.query(Earned).filter_by(job_id=job_id):
            row.units = PRICE // 2 if change == "forgotten" else row.units
    if change == "invented":
        till.restart(Ledger(till.ledger.web3, till.ledger.deployment))
        till.set_job(job_id, chain_job=1 if till.job(job_id).chain_job != 1 else 2)
    assert told(till, job_id)[1]
