"""API tokens: each has a name, a role and an end, and is stored as a hash. A token without a row has ended.

The uploads of each submit token are counted, and their bytes limited in all.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Select, select

from gradmarket.market.errors import Refused
from gradmarket.market.terms import Role
from requester.store import identities
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


def keep_own(work: Work, secret: str, now: float, role: Role = Role.ADMIN, name: str = OWN) -> None:
    """Makes this secret the service's own token of that name, and ends the previous one."""
    mine = identities.hash_of(secret)
    before: Sequence[ApiToken] = work.session.scalars(select_tokens().where(ApiToken.subject == name)).all()
    for row in before:
        if row.hash != mine:
            work.session.delete(row)
    identities.store_token(work, secret, role, name, None, now)


def spend_upload_quota(work: Work, token: str, length: int, most: int) -> None:
    """Counts bytes that the token uploads. Raises Refused where they exceed its quota."""
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
