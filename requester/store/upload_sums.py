"""How many bytes each submit token has uploaded: what it may upload in all has a bound."""

from gradmarket.market.errors import Refused
from requester.store.tables import UploadSum
from requester.store.work import Work


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
