"""Leases on work that one process at a time does, among all that share the database.

Safety does not depend on them. A process that is known to be dead holds none, so a service that was killed and
restarted on the same machine continues at once.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, cast

from sqlalchemy import CursorResult, or_, update
from sqlalchemy.exc import IntegrityError

from contracts.processes import known_ended
from requester.store.tables import LeaderLease
from requester.store.work import RowReader, Work

Begin = Callable[[], AbstractContextManager[Work]]
Reading = Callable[[], AbstractContextManager[RowReader]]

AUDITOR: Final = "auditor"
"""The duty to run the service's own auditor."""


def renew_lease(begin: Begin, reading: Reading, name: str, holder: str, now: float, seconds: float) -> bool:
    """Takes or renews the lease for `seconds`; returns False while another process has it."""
    until = now + seconds
    with reading() as reader:
        held = reader.get(LeaderLease, name)
    if held is not None and held.holder == holder and held.until > now + seconds / 2:
        return True
    dead = {held.holder} if held is not None and known_ended(held.holder) else set()
    free = or_(LeaderLease.holder.in_({holder} | dead), LeaderLease.until < now)
    with begin() as work:
        statement = update(LeaderLease).where(LeaderLease.name == name, free).values(holder=holder, until=until)
        if cast(CursorResult[Any], work.session.execute(statement)).rowcount == 1:
            return True
    try:
        with begin() as work:
            work.add(LeaderLease(name=name, holder=holder, until=until))
    except IntegrityError:
        return False
    return True


def is_held(reader: RowReader, name: str, now: float) -> bool:
    held = reader.get(LeaderLease, name)
    return held is not None and held.until >= now and not known_ended(held.holder)


def release_lease(begin: Begin, name: str, holder: str) -> None:
    """Releases the lease, so that the next process need not wait."""
    with begin() as work:
        mine = update(LeaderLease).where(LeaderLease.name == name, LeaderLease.holder == holder)
        work.session.execute(mine.values(until=0.0))
