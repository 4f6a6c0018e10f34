"""Books and chain are compared, and the books put right: at the start, and whenever an outcome cannot be true.

The chain is right about what happened. The books are right about who earned what: a batch on the chain that the books
do not hold is looked up in its events, and its gradients are found among EARNED; what is not found there stops the
job's settlement, since paying on would pay for what nobody knows.
"""

from collections import Counter

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.contracts import events
from gradmarket.contracts.packing import PackedGroup
from gradmarket.contracts.proofs import batch_root
from gradmarket.market.errors import Conflict
from gradmarket.market.terms import Address, BatchState
from gradmarket.requester.chain import escrow, mirror, outcomes
from gradmarket.requester.chain.chain_context import ChainContext, TransactionState
from gradmarket.requester.chain.chain_jobs import tell_once, with_money
from gradmarket.requester.store.tables import Account, Batch, Earned, Job, Transaction

DONE = (TransactionState.MINED, TransactionState.REVERTED)


class BooksDiffer(Conflict):
    """The chain has a batch that the books cannot explain."""


def everything(chain: ChainContext) -> None:
    """After a start or a gap: transactions, batches and accounts of every job that has money on-chain."""
    rewound(chain)
    with chain.reading() as session:
        ids = [job.id for job in with_money(session)]
    for job_id in ids:
        put_right(chain, job_id)
        mirror.job(chain, job_id)


def rewound(chain: ChainContext) -> bool:
    """The chain went back (a re-org, or a state that was saved earlier): what it forgot is sent again, byte by byte."""
    consumed = chain.ledger.nonce(chain.sender)
    mine = (Transaction.sender == chain.sender, Transaction.nonce >= consumed, Transaction.state.in_(DONE))
    with chain.reading() as session:
        if session.scalar(select(Transaction.id).where(*mine).limit(1)) is None:
            return False
    with chain.begin() as session:
        for row in session.scalars(select(Transaction).where(*mine)).all():
            outcomes.unfinished(session, row)
    return True


def put_right(chain: ChainContext, job_id: str) -> bool:
    """`batches`; a job whose batches cannot be explained is told of, and settles no more, while the others go on."""
    try:
        return batches(chain, job_id)
    except BooksDiffer as error:
        tell_once(chain, job_id, "books_differ", reason=str(error))
        return False


def batches(chain: ChainContext, job_id: str) -> bool:
    """Settles what the chain has, puts back what it has not; whether anything was changed.

    Raises BooksDiffer where the chain has a batch of gradients that nobody earned here.
    """
    with chain.reading() as session:
        chain_job = session.get_one(Job, job_id).chain_job or 0
    onchain = chain.ledger.job(chain_job).batches
    changed = [
        _batch_on_chain(chain, job_id, chain_job, number) for number in range(_first_open(chain, job_id), onchain)
    ]
    return any([*changed, _put_back_from(chain, job_id, onchain)])


def differences(chain: ChainContext, job_id: str) -> list[str]:
    """What books and chain disagree about, in words; empty where they are equal."""
    with chain.reading() as session:
        job = session.get_one(Job, job_id)
        accounts = session.scalars(select(Account).where(Account.job_id == job_id)).all()
        settled = [batch for batch in _all(session, job_id) if batch.state == BatchState.SETTLED]
        roots = {batch.number: batch_root(escrow.groups_of(_rows(session, batch))) for batch in settled}
        credited = _credited(session, job_id)
    chain_job = job.chain_job or 0
    now = chain.ledger.job(chain_job)
    found = [_differs("batches", len(settled), now.batches)]
    found.append(_differs("deposited less refunded", job.deposited - job.refunded, now.deposited))
    for number, root in roots.items():
        found.append(_differs(f"root of batch {number}", root.hex(), chain.ledger.batch_root(chain_job, number).hex()))
    for row in accounts:
        on_chain = chain.ledger.account(chain_job, Address(row.worker))
        found.append(_differs(f"settled for {row.worker}", credited[row.worker], on_chain.settled))
        found.append(_differs(f"copy of {row.worker}'s settled", row.settled, on_chain.settled))
        found.append(_differs(f"reserved for {row.worker}", row.reserved, on_chain.reserved))
        found.append(_differs(f"withdrawn by {row.worker}", row.withdrawn, on_chain.withdrawn))
    return [each for each in found if each]


def _differs(what: str, books_say: object, chain_says: object) -> str:
    return "" if books_say == chain_says else f"{what}: books {books_say}, chain {chain_says}"


def _first_open(chain: ChainContext, job_id: str) -> int:
    """The least number that the books do not know as settled."""
    with chain.reading() as session:
        settled = {batch.number for batch in _all(session, job_id) if batch.state == BatchState.SETTLED}
    return next(number for number in range(len(settled) + 1) if number not in settled)


def _batch_on_chain(chain: ChainContext, job_id: str, chain_job: int, number: int) -> bool:
    """Books a batch that the chain has: ours if its root is, else by its events."""
    with chain.reading() as session:
        ours = _numbered(session, job_id, number)
        root = batch_root(escrow.groups_of(_rows(session, ours))) if ours else None
    if root == chain.ledger.batch_root(chain_job, number):
        with chain.begin() as session:
            batch = _numbered(session, job_id, number)
            if batch is not None:
                outcomes.settled(session, batch, chain.clock())
        return True
    groups = events.settled_groups(chain.ledger, chain_job, number)
    with chain.begin() as session:
        _displace(session, job_id, number)
        _adopt(session, job_id, number, groups, chain.clock())
    return True


def _displace(session: Session, job_id: str, number: int) -> None:
    """Batches of ours from this number on did not happen: their gradients wait for a batch again."""
    for batch in _all(session, job_id):
        if batch.number >= number:
            for row in _rows(session, batch):
                row.batch_id = None
            session.flush()
            session.delete(batch)
    session.flush()


def _adopt(session: Session, job_id: str, number: int, groups: list[PackedGroup], now: float) -> None:
    """Writes down a batch that only the chain knows, with the EARNED rows that it names."""
    rows = _earned_by(session, job_id, groups)
    batch = Batch(
        job_id=job_id,
        number=number,
        state=BatchState.SETTLED,
        gradients=len(rows),
        units=sum(row.units for row in rows),
        created_at=now,
        settled_at=now,
    )
    session.add(batch)
    session.flush()
    for row in rows:
        row.batch_id = batch.id


def _earned_by(session: Session, job_id: str, groups: list[PackedGroup]) -> list[Earned]:
    """One row that is in no batch for each gradient of the groups."""
    waiting: dict[tuple[str, int, bytes], list[Earned]] = {}
    free = select(Earned).where(Earned.job_id == job_id, Earned.batch_id.is_(None)).order_by(Earned.id.desc())
    for row in session.scalars(free):
        waiting.setdefault((row.worker, row.units, row.digest), []).append(row)
    named: list[tuple[str, int, bytes]] = [
        (each.worker, each.price, digest) for each in groups for digest in each.digests
    ]
    missing = Counter(named) - Counter({key: len(rows) for key, rows in waiting.items()})
    if missing:
        raise BooksDiffer(f"{missing.total()} gradients that nobody earned in job {job_id}")
    return [waiting[key].pop() for key in named]


def _put_back_from(chain: ChainContext, job_id: str, onchain: int) -> bool:
    """Batches that the books call settled and the chain does not have."""
    with chain.begin() as session:
        forgotten = [b for b in _all(session, job_id) if b.number >= onchain and b.state == BatchState.SETTLED]
        for batch in forgotten:
            outcomes.put_back(session, batch)
            row = session.get(Transaction, batch.transaction_id) if batch.transaction_id else None
            if row is None or row.state not in (TransactionState.PREPARED, TransactionState.SENT):
                batch.transaction_id = None
    return bool(forgotten)


def _credited(session: Session, job_id: str) -> Counter[str]:
    """Units by worker in batches that the books call settled."""
    settled = select(Batch.id).where(Batch.job_id == job_id, Batch.state == BatchState.SETTLED)
    total: Counter[str] = Counter()
    for row in session.scalars(select(Earned).where(Earned.batch_id.in_(settled))):
        total[row.worker] += row.units
    return total


def _all(session: Session, job_id: str) -> list[Batch]:
    return list(session.scalars(select(Batch).where(Batch.job_id == job_id).order_by(Batch.number)))


def _numbered(session: Session, job_id: str, number: int) -> Batch | None:
    return session.scalar(select(Batch).where(Batch.job_id == job_id, Batch.number == number))


def _rows(session: Session, batch: Batch) -> list[Earned]:
    return list(session.scalars(select(Earned).where(Earned.batch_id == batch.id).order_by(Earned.id)))
