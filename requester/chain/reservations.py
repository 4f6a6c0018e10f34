"""Reserves money for single workers ahead of the work: the amount each needs, and the transaction for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import exists, select

from contracts import calls
from gradmarket.market.rules import assignment, lifecycle
from gradmarket.market.rules import newcomers as rules
from gradmarket.market.rules.payment import AccountStanding, top_up
from gradmarket.market.terms import Address, JobState, Units
from gradmarket.network.chain_errors import ContractRefused
from requester.chain import sender
from requester.chain.chain_context import (
    ChainContext,
    TransactionKind,
    TransactionState,
    is_job_expired,
    list_running_chain_jobs,
    record_once,
    with_money,
)
from requester.store import ballots, earned_rows, jobs, newcomers, workers
from requester.store.accounts import accounts_of
from requester.store.tables import Account, Job, Transaction
from requester.store.work import RowReader

MOST_ROWS: Final = 200
"""Most workers in one transaction: each costs about 30,000 gas the first time."""
OVER: Final = tuple(state for state in JobState if lifecycle.is_final_state(state))
ANY_NUMBER: Final = 2**31
NOTHING: Final = AccountStanding(Units(0), Units(0), Units(0))
LOW_SHARE: Final = 5
"""An event reports that money runs low once less than a fifth of the deposit is free."""


@dataclass(frozen=True, slots=True)
class Need:
    """`most`: the most gradients that the job may still ask of the worker. `waited_for`: an open task waits for it."""

    worker: Address
    standing: AccountStanding
    most: int = ANY_NUMBER
    waited_for: bool = False

    def compute_top_up(self, price: Units, ahead: int, beside: bool = False) -> Units:
        """Returns the amount to reserve: nothing for work that the worker can no longer be given.

        An audit's award beyond its reservation is no such work: it is earned.
        """
        money = self.standing
        left = max(0, self.most * price + money.earned + money.in_flight - money.reserved)
        return Units(min(top_up(self.standing, price, ahead, beside), left))


@dataclass(frozen=True, slots=True)
class ReservationCase:
    """A job, its workers with their standings, and its number in the contract."""

    job_id: str
    chain_job: int
    price: Units
    deposited: Units
    needs: tuple[Need, ...]
    unit: int
    """The token's smallest units in one of the job's."""
    ahead: int = 0
    """The most gradients to reserve ahead for each worker; 1 once workers that are gone hold their allowance."""


def compute_headroom(free: Units, price: Units, count: int, most: int) -> int:
    """Returns the gradients to reserve ahead for each of `count` workers: `most`, or fewer as the escrow runs out.

    One round of top-ups takes at most a quarter of the free money, so that near a job's end no money is reserved for
    workers that get no task.
    """
    return max(1, min(most, free // (4 * price * max(1, count))))


def plan_reservations(needs: Sequence[Need], free: Units, price: Units, most: int) -> list[tuple[Address, Units]]:
    """Returns the workers and amounts to reserve, at most `free` together; where that is too little, one gradient each
    in turn.

    Where one is due, those that soon will be share its transaction. Workers that could not take a single task now come
    first; among them those that an open task waits for, and then those that have earned before.
    """
    ahead = compute_headroom(free, price, len(needs), most)
    order = sorted(
        needs,
        key=lambda one: (one.standing.uncommitted >= price, not one.waited_for, not one.standing.earned, one.worker),
    )
    any_due = any(need.compute_top_up(price, ahead) for need in order)
    amounts = {need.worker: need.compute_top_up(price, ahead, beside=any_due) for need in order}
    if sum(amounts.values()) <= free:
        return [(worker, units) for worker, units in amounts.items() if units]
    counts = dict.fromkeys(amounts, 0)
    rest = free // price
    while rest:
        short = [worker for worker, units in amounts.items() if counts[worker] * price < units][:rest]
        if not short:
            break
        for worker in short:
            counts[worker] += 1
        rest -= len(short)
    return [(worker, Units(gradients * price)) for worker, gradients in counts.items() if gradients]


def post_reservations(chain: ChainContext) -> bool:
    """Posts a reservation for each job that needs one and has none pending; returns whether any was posted."""
    with chain.reading() as reader:
        cases = [
            case for job in list_running_chain_jobs(reader) if (case := _load_reservation_case(chain, reader, job))
        ]
        uncovered = [case for job in with_money(reader) if (case := _find_uncovered_case(reader, job, chain.clock()))]
    moved = False
    for case in cases:
        if any(need.compute_top_up(case.price, case.ahead) for need in case.needs):
            free = chain.ledger.free(case.chain_job)
            if free * LOW_SHARE < case.deposited:
                record_once(chain, case.job_id, "low_balance", free=str(free * case.unit))
            rows = plan_reservations(case.needs, free, case.price, case.ahead)[:MOST_ROWS]
            moved |= bool(rows) and _post_reservation(chain, case, rows)
    for case in uncovered:  # exactly the earned amounts, for the first workers that the free money covers
        free, rows = chain.ledger.free(case.chain_job), []
        for need in case.needs[:MOST_ROWS]:
            units = Units(min(free, need.standing.earned - need.standing.reserved))
            free = Units(free - units)
            rows += [(need.worker, units)] if units else []
        moved |= bool(rows) and _post_reservation(chain, case, rows)
    return moved


def drop_late(chain: ChainContext) -> bool:
    """Empties reservations that were not sent before their job was over, except those that cover an audit's award.

    Workers release the rest of their reservations once a job is over: a later reservation comes back only when the time
    for claims is over. One that was mined and that the chain forgot is sent again: work was done for its money. Returns
    whether any was emptied.
    """
    with chain.reading() as reader:
        rows = reader.session.scalars(_LATE).all()
    for row in rows:
        sender.replace_by_empty_payment(chain, row)
    return bool(rows)


_LATE: Final = (
    select(Transaction.id)
    .join(Job, Job.id == Transaction.job_id)
    .where(
        Transaction.kind == TransactionKind.RESERVE,
        Transaction.state == TransactionState.PREPARED,
        Transaction.gas.is_(None),
        Job.state.in_(OVER),
        ~exists().where(Account.job_id == Job.id, Account.earned > Account.reserved),
    )
)


def _load_reservation_case(chain: ChainContext, reader: RowReader, job: Job) -> ReservationCase | None:
    """Returns the job with the live workers that earned in it, and the workers that it admits next.

    None where a reservation is pending, since standings are about to change, or where the job has expired.
    """
    now = chain.clock()
    if not _may_reserve(reader, job, now):
        return None
    able = None  # any class, while the job has none; else those whose workers can share its tasks
    if job.determinism_class is not None:
        able = assignment.list_comparable_classes(job.determinism_class, ballots.list_mixable_classes(reader, job, now))
    live = [
        row
        for row in workers.list_live_earners(reader, job, now)
        if able is None or workers.get_class(row, job) in able
    ]
    here = [worker.address for worker in live if workers.is_serving_job(worker, job.id)]
    locked = newcomers.sum_left_units(reader, job, now)
    allowance = rules.compute_allowance(Units(job.deposited), jobs.round_cost(reader, job))
    earned = {worker: money.earned for worker, money in workers.standings_of(reader, job, here).items()}
    price, quorum = jobs.compute_reserve_per_gradient(job), jobs.load_spec(job).plan().quorum
    topped_up = rules.choose_topped_up(earned, price, locked, allowance, quorum)
    theirs = sorted({*topped_up, *newcomers.next_covered(reader, job, now)})
    standings = workers.standings_of(reader, job, theirs)
    ahead = 1 if locked >= allowance else chain.policy.reserve_ahead
    short = [worker for worker in theirs if top_up(standings.get(worker, NOTHING), price, ahead, beside=True)]
    places = newcomers.count_places_left(reader, job, short, ahead, now) if short else {}
    needs = list[Need]()
    for worker in theirs:
        left, one = places.get(worker), (Address(worker), standings.get(worker, NOTHING))
        needs.append(Need(*one) if left is None else Need(*one, left.open + left.to_come, left.open > 0))
    deposited = Units(job.deposited)
    return ReservationCase(job.id, job.chain_job or 0, price, deposited, tuple(needs), int(job.unit), ahead)


def _find_uncovered_case(reader: RowReader, job: Job, now: float) -> ReservationCase | None:
    """For a job that is over: returns the workers whose earnings after an audit exceed their reservations, or None."""
    if not lifecycle.is_final_state(job.state) or not _may_reserve(reader, job, now):
        return None
    short = {
        who: money
        for who, money in workers.list_account_standings(reader, job).items()
        if money.earned > money.reserved
    }
    needs = tuple(Need(Address(worker), short[worker]) for worker in sorted(short))
    price, deposited = jobs.compute_reserve_per_gradient(job), Units(job.deposited)
    return ReservationCase(job.id, job.chain_job or 0, price, deposited, needs, int(job.unit)) if needs else None


def _may_reserve(reader: RowReader, job: Job, now: float) -> bool:
    return not is_job_expired(job, now) and not sender.under_way(reader, TransactionKind.RESERVE, job.id)


def _post_reservation(chain: ChainContext, case: ReservationCase, rows: list[tuple[Address, Units]]) -> bool:
    """Posts the reservation, after opening accounts for the workers that it names and for no others."""
    with chain.begin() as work:
        known = {account.worker: account for account in accounts_of(work, case.job_id, [worker for worker, _ in rows])}
        for worker, _ in rows:
            account = known.get(worker) or earned_rows.load_or_create_account(work, case.job_id, worker)
            account.reserved_at = chain.clock()
    try:
        quoted = sender.quote_call(chain, calls.reserve(chain.market, case.chain_job, rows))
    except ContractRefused as error:
        record_once(chain, case.job_id, "reservation_refused", reason=str(error))
        return False
    return sender.post_once(chain, quoted, TransactionKind.RESERVE, case.job_id)
