"""Claims of rounds as rows: the withheld digests of a merge, and the auditors that sent the same."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ForeignKey, bindparam, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.features import claims as claim_messages
from gradmarket.market.terms import Address, Digest, Hash
from requester.store.tables import Base, Job
from requester.store.work import RowReader, Work


class RoundClaimRow(Base):
    """`digest` is withheld while `auditor` is None."""

    __tablename__ = "round_claims"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    digest: Mapped[Digest]
    auditor: Mapped[Address | None]
    signature: Mapped[bytes | None]


def store_withheld(work: Work, job: Job, number: int, withheld: Sequence[Digest]) -> None:
    """Stores the digests of a merge, in place of those of an earlier merge of the round."""
    delete_claims(work, job.id, number, number)
    for claim, digest in enumerate(withheld):
        work.add(RoundClaimRow(job_id=job.id, round=number, number=claim, digest=digest))


def derive_key(job: Job, row: RoundClaimRow) -> Hash:
    """Returns the key under which the claim's digest was computed."""
    return claim_messages.derive_claim_key(job.secret, row.round, row.number)


def delete_claims(work: Work, job_id: str, first: int, last: int | None = None) -> None:
    gone = delete(RoundClaimRow).where(RoundClaimRow.job_id == job_id, RoundClaimRow.round >= first)
    work.session.execute(gone if last is None else gone.where(RoundClaimRow.round <= last))


def list_claims(reader: RowReader, job_id: str, number: int) -> Sequence[RoundClaimRow]:
    """Returns the round's claims, in order: those that were answered come first."""
    return reader.session.scalars(_CLAIMS, {"job": job_id, "number": number}).all()


_CLAIMS: Final = (
    select(RoundClaimRow)
    .where(RoundClaimRow.job_id == bindparam("job"), RoundClaimRow.round == bindparam("number"))
    .order_by(RoundClaimRow.number)
)
