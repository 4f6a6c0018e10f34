"""EARNED: one row for every replica that earned, written in one transaction with the account's sum."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import select

from requester.store.among import is_in_bound_list
from requester.store.tables import Account, Earned, Replica, Task
from requester.store.work import Work

WAITING: Final = (Earned.waits, Earned.revoked.is_(False))


def lock_accounts(work: Work, accounts: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Account]:
    """Locks accounts, given as pairs of job and worker, and returns them as they are now."""
    pairs = set(accounts)
    if not pairs:
        return {}
    jobs, workers = zip(*pairs, strict=True)
    rows = work.session.scalars(_NAMED, {"jobs": jobs, "workers": workers})
    return {(account.job_id, account.worker): account for account in rows}


_NAMED: Final = (
    select(Account)
    .where(is_in_bound_list(Account.job_id, "jobs"), is_in_bound_list(Account.worker, "workers"))
    .order_by(Account.job_id, Account.worker)
    .with_for_update(key_share=True)
    .execution_options(populate_existing=True)
)


def record_earning(
    work: Work,
    account: Account,
    task: Task,
    replica: Replica,
    root: bytes,
    now: float,
    worth: int | None = None,
    waits: bool = False,
) -> None:
    """Records that `replica` earned its offer's price for the payload `root`; or, with `worth`, these units beyond it.

    Where it `waits`, no voucher promises it before `end_waiting`. The caller has locked its account. The row is written
    at the transaction's end; the table's unique key refuses a second one of the same kind for the same replica.
    """
    price = task.offer.price if worth is None else worth
    work.record(
        Earned(
            job_id=task.job_id,
            task_id=task.id,
            replica_id=replica.id,
            worker=replica.worker,
            units=price,
            digest=root,
            revoked=False,
            at=now,
            waits=waits,
            by_worth=worth is not None,
        ),
    )
    account.earned += price
    account.waiting += price * waits


def load_or_create_account(work: Work, job_id: str, worker: str) -> Account:
    """Returns the worker's account in the job; creates it where there is none."""
    row = work.get(Account, (job_id, worker))
    if row is None:
        row = Account(job_id=job_id, worker=worker)
        work.add(row)
        work.flush()
    return row
