"""Marks workers as present while their polls wait: the process that holds the polls does so for them."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import bindparam, select, update

from requester.store.among import is_in_bound_list
from requester.store.tables import Worker
from requester.store.work import Work
from requester.store.workers import LIVE_S

_NAMED: Final = is_in_bound_list(Worker.address, "workers")
_UNLOCKED: Final = select(Worker.address).where(_NAMED).with_for_update(skip_locked=True, key_share=True)
"""Skips locked rows: whoever writes one has heard of its worker, and waiting for locks in no order would deadlock."""
_HERE: Final = (
    update(Worker)
    .where(Worker.address.in_(_UNLOCKED))
    .values(seen_at=bindparam("now"), asking_until=bindparam("until"))
)
_GONE: Final = update(Worker).where(_NAMED).values(asking_until=0.0)


def still_here(work: Work, addresses: Collection[str], now: float) -> None:
    """Marks workers as live and, as far as they have room, asking for work, both for LIVE_S from now on."""
    values = {"workers": addresses, "now": now, "until": now + LIVE_S}
    work.connection().execute(_HERE, values)


def mark_gone(work: Work, addresses: Collection[str]) -> None:
    """Marks workers as not asking: nothing is leased to them until they come again."""
    work.connection().execute(_GONE, {"workers": addresses})
