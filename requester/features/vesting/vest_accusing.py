"""Turns each failed audit of a job that vests into one accusation on-chain and follows its case to the end.

The stage of a case is read from the chain each time, as for stakes (requester.features.stakes.accusing):

    none    accused, with the job's bond, of the worker's locked pay that no other case claims; dropped where one of
            the worker's cases in the job failed: silent validators burn one bond a worker, not one a lie
    vested  waits for the validators' ruling, which anybody may submit; after the window it is closed: the bond burns
    closed  recorded, and a bond that came back is withdrawn from the stake
"""

from typing import Final

from contracts import calls, stakes
from contracts.stakes import CaseStage
from gradmarket.market.features.vesting import PayLock
from gradmarket.market.terms import AccusationState, Units
from requester.chain import sender
from requester.chain.chain_context import ChainContext, TransactionKind
from requester.features.stakes import accusations
from requester.features.stakes.accusing import end_case, post_transaction, post_with_bond, store_case_state

RULED_ON: Final = AccusationState.CONTESTED
"""The state of a case that only validators decide: the same as of a contested case of a stake."""


def advance_vest_accusations(chain: ChainContext) -> bool:
    """Advances every accusation of locked pay that is not over by one step; returns whether any moved."""
    with chain.reading() as reader:
        waiting = accusations.open_ones(reader, lambda spec: spec.vesting is not None)
    cases = [stakes.case(chain.ledger, row.case) for _, row in waiting]
    under_way = [case for case in cases if case.stage == CaseStage.VESTED]
    moved = False
    for (job, row), case in zip(waiting, cases, strict=True):
        if case.stage == CaseStage.CLOSED:
            moved |= end_case(chain, job, row, case)
            continue
        if case.stage != CaseStage.NONE:
            moved |= store_case_state(chain, row, RULED_ON, case)
            if chain.ledger.block().time > case.until:
                moved |= post_transaction(chain, job, TransactionKind.CLOSE, calls.close_case(chain.market, row.case))
            continue
        mine = [one.amount for one in under_way if (one.job, one.worker) == (job.chain_job, row.worker)]
        accused = Units(sum(mine) // int(job.unit))
        chain_job, now = job.chain_job or 0, chain.ledger.next_time()
        with chain.reading() as reader:
            failed = accusations.was_acquitted(reader, job.id, row.worker)
            posted = failed and sender.under_way(reader, TransactionKind.ACCUSE, job.id)
        if posted:  # its case may be this one's: once it is mined, the bond is looked after
            continue
        if failed:
            moved |= store_case_state(chain, row, AccusationState.VOID, None)
            continue
        onchain, account = chain.ledger.job(chain_job), chain.ledger.account(chain_job, row.worker)
        lock = PayLock(account.unpaid, account.credited_at, onchain.vest, onchain.vest_window)
        amount = lock.choose_accused(accused, now)
        if amount > 0:
            call = calls.accuse_vested(chain.market, chain_job, row.worker, amount, row.event)
            moved |= post_with_bond(chain, job, call)
        elif now > max(onchain.claim_until, lock.until):
            moved |= store_case_state(chain, row, AccusationState.VOID, None)
    return moved
