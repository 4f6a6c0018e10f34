"""Queries for market.rules.faults: whose work was accepted before, and whose reports of faults were disproved."""

from collections.abc import Collection

from sqlalchemy import exists, or_, select
from sqlalchemy.orm import aliased

from requester.store.tables import Earned, Replica, Task
from requester.store.work import RowReader


def list_accepted_workers(reader: RowReader, addresses: Collection[str]) -> set[str]:
    """Returns those of the workers whose work was accepted before."""
    return set(reader.session.scalars(select(Earned.worker).where(Earned.worker.in_(addresses)).distinct()))


def list_disproved_keys(reader: RowReader, job_id: str, keys: Collection[str]) -> set[str]:
    """Returns the keys of all who reported a fault for a task to which another worker's answer was accepted.

    Looks at reports under any of `keys`, which are wallets and operators: a wallet that joined another operator since
    is found by its address, and the other wallets of an operator by that.
    """
    failed, other = aliased(Task), aliased(Task)
    same = (other.job_id == failed.job_id, other.round == failed.round, other.index == failed.index)
    done = exists().where(*same, other.payload.is_not(None))
    claims = select(Replica.worker, Replica.operator).join(failed, failed.id == Replica.task_id)
    theirs = or_(Replica.worker.in_(keys), Replica.operator.in_(keys))
    refuted = claims.where(Replica.job_id == job_id, theirs, Replica.fault.is_not(None), done)
    return {key for row in reader.session.execute(refuted.distinct()) for key in row}
