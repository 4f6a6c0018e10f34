"""A failed audit -> an accusation on the chain -> its end, each exactly once.

The contract takes an event of a worker once, and one accusation of a job is under way at a time: so whatever became of
a transaction, a lie is accused once. Where a case stands is read from the chain at every look, never remembered:

    none       accused, with the job's bond, of all that the worker has at risk and no other case claims
    open       waits for the worker to contest; after the window it is closed: slashed
    contested  waits for the job's validators, whose ruling anybody may send; after the window it is closed: dismissed
    closed     booked, and a bond that came back taken out of the stake
"""

from typing import Final

from gradmarket.contracts import calls, events, stakes
from gradmarket.contracts.calls import Call
from gradmarket.contracts.errors import ContractRefused
from gradmarket.contracts.stakes import Case, Stage
from gradmarket.market.terms import AccusationState, Address, Amount, Hash
from gradmarket.requester.chain import funding, mirror, sender
from gradmarket.requester.chain.desk import Desk, Kind
from gradmarket.requester.chain.money import tell_once
from gradmarket.requester.store import accusations
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.tables import Accusation, Job
from gradmarket.requester.store.transitions import move_now

STAGES: Final = {Stage.OPEN: AccusationState.OPEN, Stage.CONTESTED: AccusationState.CONTESTED}
ENDS: Final = {
    "Slashed": AccusationState.SLASHED,
    "Acquitted": AccusationState.ACQUITTED,
    "Dismissed": AccusationState.DISMISSED,
}


def step(desk: Desk) -> bool:
    """One move for each accusation that is not over; whether there was any."""
    with desk.reading() as session:
        waiting = [(session.get_one(Job, row.job_id), row) for row in accusations.open_ones(session)]
    return sum(_advance(desk, job, row) for job, row in waiting) > 0


def _advance(desk: Desk, job: Job, row: Accusation) -> bool:
    case = stakes.case(desk.ledger, Hash(row.case))
    if case.stage == Stage.NONE:
        return _accuse(desk, job, row)
    if case.stage == Stage.CLOSED:
        return _end(desk, job, row, case)
    moved = _book(desk, row, STAGES[case.stage], case)
    if desk.ledger.block().time > case.until:
        moved |= _post(desk, job, Kind.CLOSE, calls.close_case(desk.market, Hash(row.case)))
    return moved


def _accuse(desk: Desk, job: Job, row: Accusation) -> bool:
    worker, chain_job = Address(row.worker), job.chain_job or 0
    found = stakes.exposure(desk.ledger, chain_job, worker)
    amount = Amount(found.at_risk - found.accused)
    late = found.locked_until and desk.ledger.block().time > found.locked_until
    if amount <= 0 or late:
        return _book(desk, row, AccusationState.VOID, None)
    bond = Amount(desk.ledger.job(chain_job).bond * int(job.unit))
    if not funding.has_money(desk, bond):
        tell_once(desk, job.id, "accusation_waits", reason=f"waits for the bond of {bond} at {desk.sender}")
        return False
    if desk.ledger.allowance(desk.sender) < bond:
        return funding.approve(desk)
    return _post(desk, job, Kind.ACCUSE, calls.accuse(desk.market, chain_job, worker, amount, Hash(row.event)))


def _end(desk: Desk, job: Job, row: Accusation, case: Case) -> bool:
    """Once the word is deep enough in the chain. The bond of a case that was not lost lies in the sender's stake."""
    ended = events.ended(desk.ledger, Hash(row.case))
    if ended is None or desk.ledger.height() < ended.block + desk.policy.confirmations - 1:
        return False
    mine = stakes.staker(desk.ledger, desk.sender)
    if (back := Amount(mine.amount - mine.exposed)) > 0:
        _post(desk, None, Kind.UNSTAKE, calls.unstake(desk.market, back))
    _book(desk, row, ENDS[ended.name], case)
    mirror.workers(desk, job, [Address(row.worker)])
    return True


def _book(desk: Desk, row: Accusation, state: AccusationState, case: Case | None) -> bool:
    """Whether that is news; what is news is told."""
    if row.state == state:
        return False
    with desk.begin() as session:
        held = session.get_one(Accusation, (row.task_id, row.worker))
        values = {} if case is None else {"amount": str(case.amount), "until": case.until}
        if not move_now(session, held, state, **values):
            return False
        about = {"task": row.task_id, "worker": row.worker, "case": "0x" + row.case.hex(), "amount": held.amount}
        tell(session, row.job_id, f"accusation_{state}", desk.clock(), **about)
    return True


def _post(desk: Desk, job: Job | None, kind: Kind, call: Call) -> bool:
    name = None if job is None else job.id
    with desk.reading() as session:
        if sender.under_way(session, kind, name):
            return False
    try:
        quoted = sender.quote(desk, call)
    except ContractRefused as error:
        if name is not None:
            tell_once(desk, name, f"{kind}_refused", reason=str(error))
        return False
    return sender.post_once(desk, quoted, kind, name)
