"""EARNED: one row for every replica that earned, and the account's sum, in one transaction."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from gradmarket.requester.store.among import among
from gradmarket.requester.store.session import record
from gradmarket.requester.store.tables import Account, Earned, Replica, Task


def lock(session: Session, accounts: Iterable[tuple[str, str]]) -> None:
    """Accounts, by job and worker, as they are now and for this transaction alone."""
    named = set(accounts)
    if named:
        jobs, workers = zip(*named, strict=True)
        session.scalars(_NAMED, {"jobs": jobs, "workers": workers}).all()


_NAMED: Final = (
    select(Account)
    .where(among(Account.job_id, "jobs"), among(Account.worker, "workers"))
    .order_by(Account.job_id, Account.worker)
    .with_for_update(key_share=True)
    .execution_options(populate_existing=True)
)


def earn(session: Session, task: Task, replica: Replica, root: bytes, now: float) -> Account:
    """Writes that `replica` earned its offer's price for the payload `root`; its account, which the caller has locked.

    The row is written at the transaction's end; the table's unique key refuses a second one for the same replica.
    """
    price = task.offer["price"]
    record(
        session,
        Earned(
            job_id=task.job_id,
            task_id=task.id,
            replica_id=replica.id,
            worker=replica.worker,
            units=price,
            digest=root,
            revoked=False,
            at=now,
        ),
    )
    account = session.get_one(Account, (task.job_id, replica.worker))
    account.earned += price
    return account


def revoke(session: Session, task: Task, replicas: Sequence[Replica]) -> int:
    """No batch takes what these earned with the task, where none has yet; what their vouchers promise, in units."""
    theirs = (Earned.task_id == task.id, Earned.replica_id.in_([replica.id for replica in replicas]))
    unsettled = update(Earned).where(*theirs, Earned.batch_id.is_(None)).values(revoked=True)
    session.execute(unsettled.execution_options(synchronize_session=False))
    total: Any = session.scalar(select(func.coalesce(func.sum(Earned.units), 0)).where(*theirs))
    return int(total)


def account(session: Session, job_id: str, worker: str) -> Account:
    """The worker's account in the job, opened where there is none."""
    found = session.get(Account, (job_id, worker))
    if found is None:
        found = Account(
            job_id=job_id, worker=worker, earned=0, reserved=0, settled=0, withdrawn=0, at_risk=0, leaving=False
        )
        session.add(found)
        session.flush()
    return found
