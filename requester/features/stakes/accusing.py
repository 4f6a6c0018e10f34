"""Turns each failed audit into one accusation on-chain and follows its case to the end.

The contract accepts an event of a worker once, and at most one accusation transaction of a job is pending at a time. So
a wrong answer is accused once, whatever happens to a transaction. The stage of a case is read from the chain each time,
never remembered:

    none       accused, with the job's bond, of all that the worker has at risk and no other case claims
    open       waits for the worker to contest; after the window it is closed: slashed
    contested  waits for the validators' ruling, which anybody may submit; after the window it is closed: dismissed
    closed     recorded, and a bond that came back is withdrawn from the stake
"""

from typing import Final

from contracts import calls, events, stakes
from contracts.calls import Call
from contracts.stakes import CaseStage, OnChainCase
from gradmarket.market.terms import AccusationState, Amount
from gradmarket.network.chain_errors import ContractRefused
from requester.chain import funding, mirror, sender
from requester.chain.chain_context import ChainContext, TransactionKind, record_once
from requester.features.stakes import accusations
from requester.features.stakes.accusations import Accusation
from requester.store.tables import Job
from requester.store.work import record_event

STAGES: Final = {CaseStage.OPEN: AccusationState.OPEN, CaseStage.CONTESTED: AccusationState.CONTESTED}
ENDS: Final = {
    "Slashed": AccusationState.SLASHED,
    "Acquitted": AccusationState.ACQUITTED,
    "Dismissed": AccusationState.DISMISSED,
}


def advance_accusations(chain: ChainContext) -> bool:
    """Advances every accusation that is not over by one step; returns whether any moved."""
    with chain.reading() as reader:
        waiting = accusations.open_ones(reader, lambda spec: spec.stake is not None)
    moved = False
    for job, row in waiting:
        case = stakes.case(chain.ledger, row.case)
        if case.stage == CaseStage.NONE:
            worker, chain_job = row.worker, job.chain_job or 0
            exposure = stakes.exposure(chain.ledger, chain_job, worker)
            amount = Amount(exposure.at_risk - exposure.accused)
            late = exposure.locked_until and chain.ledger.block().time > exposure.locked_until
            if amount <= 0 or late:
                moved |= store_case_state(chain, row, AccusationState.VOID, None)
            else:
                accusation = calls.accuse(chain.market, chain_job, worker, amount, row.event)
                moved |= post_with_bond(chain, job, accusation)
        elif case.stage == CaseStage.CLOSED:
            moved |= end_case(chain, job, row, case)
        else:
            moved |= store_case_state(chain, row, STAGES[case.stage], case)
            if chain.ledger.block().time > case.until:
                moved |= post_transaction(chain, job, TransactionKind.CLOSE, calls.close_case(chain.market, row.case))
    return moved


def post_with_bond(chain: ChainContext, job: Job, accusation: Call) -> bool:
    """Posts the accusation once its bond is available; returns whether anything was posted."""
    bond = Amount(chain.ledger.job(job.chain_job or 0).bond * int(job.unit))
    if not funding.has_money(chain, bond):
        record_once(chain, job.id, "accusation_waits", reason=f"waits for the bond of {bond} at {chain.sender}")
        return False
    if chain.ledger.allowance(chain.sender) < bond:
        return funding.post_approval(chain)
    return post_transaction(chain, job, TransactionKind.ACCUSE, accusation)


def end_case(chain: ChainContext, job: Job, row: Accusation, case: OnChainCase) -> bool:
    """Withdraws a returned bond once the end of a case has enough confirmations, and records the end after that."""
    ended = events.ended(chain.ledger, row.case)
    if ended is None or chain.ledger.height() < ended.block + chain.policy.confirmations - 1:
        return False
    mine = stakes.staker(chain.ledger, chain.sender)
    if (back := Amount(mine.amount - mine.exposed)) > 0:
        return post_transaction(chain, None, TransactionKind.UNSTAKE, calls.unstake(chain.market, back))
    with chain.reading() as reader:
        if sender.under_way(reader, TransactionKind.UNSTAKE):
            return False
    store_case_state(chain, row, ENDS[ended.name], case)
    mirror.copy_accounts_from_chain(chain, job, [row.worker], chain.ledger.height())
    return True


def store_case_state(chain: ChainContext, row: Accusation, state: AccusationState, case: OnChainCase | None) -> bool:
    """Stores the accusation's new state and emits an event; returns False where nothing changed."""
    if row.state == state:
        return False
    with chain.begin() as work:
        held = work.get_one(Accusation, (row.task_id, row.worker))
        values = {} if case is None else {"amount": str(case.amount), "until": case.until}
        if not work.set_state_now(held, state, **values):
            return False
        about = {
            "task": row.task_id,
            "worker": row.worker,
            "case": "0x" + row.case.hex(),
            "amount": held.amount,
        }
        record_event(work, row.job_id, f"accusation_{state}", chain.clock(), **about)
    return True


def post_transaction(chain: ChainContext, job: Job | None, kind: TransactionKind, call: Call) -> bool:
    name = None if job is None else job.id
    with chain.reading() as reader:
        if sender.under_way(reader, kind, name):
            return False
    try:
        quoted = sender.quote_call(chain, call)
    except ContractRefused as error:
        if name is not None:
            record_once(chain, name, f"{kind}_refused", reason=str(error))
        return False
    return sender.post_once(chain, quoted, kind, name)
