"""A lease on sending: of all processes that share the database, one at a time does the chain work.

Safety does not depend on it: the tables' unique keys let a nonce and a batch number be used once. The lease keeps two
processes from doing the same work in vain. A process that is known to be dead holds no lease, so a service that was
killed and restarts on the same machine continues at once.
"""

from typing import Any, cast

from sqlalchemy import CursorResult, or_, update
from sqlalchemy.exc import IntegrityError

from contracts.processes import known_ended
from requester.chain.chain_context import ChainContext
from requester.store.tables import LeaderLease


def renew_leader_lease(chain: ChainContext) -> bool:
    """Takes or renews the lease for the chain's sender; returns False while another process has it."""
    name, now = f"chain:{chain.sender}", chain.clock()
    until = now + chain.policy.duty_s
    with chain.reading() as reader:
        held = reader.get(LeaderLease, name)
    if held is not None and held.holder == chain.holder and held.until > now + chain.policy.duty_s / 2:
        return True
    dead = {held.holder} if held is not None and known_ended(held.holder) else set()
    free = or_(LeaderLease.holder.in_({chain.holder} | dead), LeaderLease.until < now)
    with chain.begin() as work:
        statement = update(LeaderLease).where(LeaderLease.name == name, free).values(holder=chain.holder, until=until)
        if cast(CursorResult[Any], work.session.execute(statement)).rowcount == 1:
            return True
    try:
        with chain.begin() as work:
            work.add(LeaderLease(name=name, holder=chain.holder, until=until))
    except IntegrityError:
        return False
    return True


def release_leader_lease(chain: ChainContext) -> None:
    """Releases the lease, so that the next process need not wait."""
    with chain.begin() as work:
        mine = update(LeaderLease).where(
            LeaderLease.name == f"chain:{chain.sender}", LeaderLease.holder == chain.holder
        )
        work.session.execute(mine.values(until=0.0))
