"""How much of a private job's budget its merged rounds have spent, in rounds of the least noise."""

from typing import Final

from sqlalchemy import bindparam, select

from gradmarket.market.job import JobSpec
from gradmarket.market.rules import secure_sums
from requester.store.tables import SecureSum
from requester.store.work import RowReader


def count_noised_rounds(reader: RowReader, job_id: str, spec: JobSpec, merged: int) -> float:
    """Returns the rounds that privacy counts of so many merged ones: under masks each survivor has added its noise."""
    if spec.private is None or spec.privacy is None or spec.secure is None:
        return merged
    sums = reader.session.scalars(_SURVIVORS, {"job": job_id, "merged": merged})
    survivors = [int.from_bytes(packed, "big").bit_count() for packed in sums if packed]
    return secure_sums.rounds_spent(spec.secure, len(spec.private.holders), survivors) + merged - len(survivors)


_SURVIVORS: Final = select(SecureSum.survivors).where(
    SecureSum.job_id == bindparam("job"), SecureSum.round < bindparam("merged")
)
