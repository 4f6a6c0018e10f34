"""The bytes that tokens of the role submit upload: they are counted, and limited in all."""

from fastapi import HTTPException
from sqlalchemy.orm import Mapped, mapped_column

from requester.store.tables import Base
from requester.store.work import Work


class UploadSum(Base):
    """The bytes that a submit token has uploaded in all, by its name."""

    __tablename__ = "upload_sums"

    token: Mapped[str] = mapped_column(primary_key=True)
    bytes: Mapped[int]


def spend_upload_quota(work: Work, token: str, length: int, most: int) -> None:
    """Counts bytes that the token uploads. Raises 413 where they exceed its quota."""
    work.one_at_a_time(f"uploads of {token}")
    row = work.get(UploadSum, token)
    spent = 0 if row is None else row.bytes
    if spent + length > most:
        detail = f"the token {token} has uploaded {spent:,} bytes and may upload {most:,} in all"
        raise HTTPException(413, f"{detail}: ask whoever runs the service for more (GRADMARKET_UPLOAD_QUOTA)")
    if row is None:
        work.add(UploadSum(token=token, bytes=length))
    else:
        row.bytes += length
