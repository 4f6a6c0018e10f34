"""API tokens: each has a name, a role and an end, and is stored as a hash. A token without a row has ended.

What each submit token uploads is counted, and may in all have so many bytes.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from sqlalchemy import CursorResult, Select, delete, select

from gradmarket.market.errors import Conflict, Refused
from gradmarket.market.terms import Role
from requester.store import identities, leader_leases
from requester.store.tables import ApiToken, UploadSum
from requester.store.work import Work

OWN: Final = "requester"
"""The name of the service's own token, which comes from the settings or from the data folder."""


AUDITOR: Final = "own-auditor"
"""The name of the token of the auditor that the service runs itself."""


def operator_of(subject: str) -> str:
    """Returns the operator that a token of this name stands for; the service's own auditor is the requester's."""
    return OWN if subject == AUDITOR else subject


def select_tokens() -> Select[ApiToken]:
    return select(ApiToken).where(ApiToken.role.in_(Role))


def create_token(work: Work, name: str, role: Role, until: float | None, now: float) -> tuple[str, ApiToken]:
    """Returns the secret, shown only this once, and its row; raises Conflict where a token of this name is valid."""
    work.one_at_a_time(f"token {name}")
    work.session.execute(delete(ApiToken).where(ApiToken.until < now))
    if name in (OWN, AUDITOR) or work.session.scalar(select_tokens().where(ApiToken.subject == name)) is not None:
        raise Conflict(f"there is a token named {name}: revoke it first, or take another name")
    secret = identities.issue_token(work, role, name, until, now)
    return secret, work.get_one(ApiToken, identities.hash_of(secret))


def revoke_token(work: Work, name: str, now: float) -> bool:
    """Ends the token with this transaction; returns whether there was one.

    Raises Conflict for the service's own, and for its auditor's while a service runs one.
    """
    if name == OWN:
        raise Conflict("this is the service's own token: change it in GRADMARKET_TOKEN or keys/token, and start again")
    if name == AUDITOR and leader_leases.is_held(work, leader_leases.AUDITOR, now):
        raise Conflict("this is the token of the service's own auditor: start the service with --auditor none first")
    named = delete(ApiToken).where(ApiToken.role.in_(Role), ApiToken.subject == name)
    return cast(CursorResult[Any], work.session.execute(named)).rowcount > 0


def keep_own(work: Work, secret: str, now: float, role: Role = Role.ADMIN, name: str = OWN) -> None:
    """Makes this secret the service's own token of that name, and ends the one that it had before."""
    mine = identities.hash_of(secret)
    before: Sequence[ApiToken] = work.session.scalars(select_tokens().where(ApiToken.subject == name)).all()
    for row in before:
        if row.hash != mine:
            work.session.delete(row)
    identities.store_token(work, secret, role, name, None, now)


def spend_upload_quota(work: Work, token: str, length: int, most: int) -> None:
    """Counts bytes that the token uploads. Raises Refused where they are more than it may."""
    work.one_at_a_time(f"uploads of {token}")
    row = work.get(UploadSum, token)
    spent = 0 if row is None else row.bytes
    if spent + length > most:
        raise Refused(
            f"the token {token} has uploaded {spent:,} bytes and may upload {most:,} in all",
            "ask whoever runs the service for more (GRADMARKET_UPLOAD_QUOTA)",
        )
    if row is None:
        work.add(UploadSum(token=token, bytes=length))
    else:
        row.bytes += length
