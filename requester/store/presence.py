"""Workers whose polls wait say nothing meanwhile: the process that has the polls says that they are there."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from gradmarket.requester.store.tables import Worker
from gradmarket.requester.store.workers import LIVE_S

AT_ONCE: Final = 10_000
"""Workers in a statement: SQLite takes 32,766 parameters, PostgreSQL 65,535."""
_NAMED: Final = Worker.address.in_(bindparam("workers", expanding=True))
_UNLOCKED: Final = select(Worker.address).where(_NAMED).with_for_update(skip_locked=True, key_share=True)
"""Whoever is being written to is heard of without this; waiting for it, in no order, would be a deadlock."""
_HERE: Final = update(Worker).where(Worker.address.in_(_UNLOCKED))
_GONE: Final = update(Worker).where(_NAMED).values(asking_until=0.0)
_BLIND: Final = {"synchronize_session": False}


def still_here(session: Session, addresses: Collection[str], now: float) -> None:
    """They live and, as far as they have room, ask for work: both for LIVE_S from now on, unless it is said again."""
    said = _HERE.values(seen_at=now, asking_until=now + LIVE_S)
    for some in _parts(addresses):
        session.execute(said, {"workers": some}, execution_options=_BLIND)


def gone(session: Session, addresses: Collection[str]) -> None:
    """They ask no more: nothing is leased to them until they come again."""
    for some in _parts(addresses):
        session.execute(_GONE, {"workers": some}, execution_options=_BLIND)


def _parts(addresses: Collection[str]) -> Iterator[list[str]]:
    left = iter(sorted(addresses))
    while some := list(islice(left, AT_ONCE)):
        yield some
