"""A lease on sending: of all processes that share the database, one at a time does the chain work.

What is safe does not hang on it: a nonce and a batch number can be taken once, by the tables' unique keys. It keeps
two processes from doing the same work in vain. Who is known to be dead holds nothing: a service that was killed and
comes back on the same machine goes on at once.
"""

from typing import Any, cast

from sqlalchemy import CursorResult, or_, update
from sqlalchemy.exc import IntegrityError

from gradmarket.contracts.processes import known_ended
from gradmarket.requester.chain.desk import Desk
from gradmarket.requester.store.tables import Duty


def hold(desk: Desk) -> bool:
    """Takes or renews the duty for the desk's sender; False while another process has it."""
    name, now = f"chain:{desk.sender}", desk.clock()
    until = now + desk.policy.duty_s
    with desk.reading() as session:
        held = session.get(Duty, name)
    if held is not None and held.holder == desk.holder and held.until > now + desk.policy.duty_s / 2:
        return True
    dead = {held.holder} if held is not None and known_ended(held.holder) else set()
    free = or_(Duty.holder.in_({desk.holder} | dead), Duty.until < now)
    with desk.begin() as session:
        statement = update(Duty).where(Duty.name == name, free).values(holder=desk.holder, until=until)
        if cast(CursorResult[Any], session.execute(statement)).rowcount == 1:
            return True
    try:
        with desk.begin() as session:
            session.add(Duty(name=name, holder=desk.holder, until=until))
    except IntegrityError:
        return False
    return True


def leave(desk: Desk) -> None:
    """Gives the duty back, so that the next process need not wait."""
    with desk.begin() as session:
        mine = update(Duty).where(Duty.name == f"chain:{desk.sender}", Duty.holder == desk.holder)
        session.execute(mine.values(until=0.0))
