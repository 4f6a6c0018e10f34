"""Rounds of private jobs that are summed under masks, so that the service sees a sum and no answer."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import bindparam, select

from gradmarket.market.errors import JobRefused
from gradmarket.market.features.secure_sums import sum_units
from gradmarket.market.features.secure_sums.job_sum import build_sum_terms
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Manifest
from gradmarket.market.terms import Address
from requester.context import Context
from requester.feature import Feature
from requester.features.secure_sums import secure_routes, secure_steps, sum_rows
from requester.features.secure_sums.secure_tables import SecureSum
from requester.model_runner import PublishedModel
from requester.store.round_sum import RoundSum
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work


class MaskedSum(RoundSum):
    def list_shut_out(self, reader: RowReader, job: Job, number: int) -> Collection[Address]:
        return sum_rows.list_shut_out(reader, job, number)

    def find_receipt(self, reader: RowReader, job: Job, number: int, worker: Address) -> bytes | None:
        return sum_rows.find_receipt(reader, job, number, worker)

    def may_merge(self, reader: RowReader, job: Job, number: int) -> bool:
        return sum_rows.may_merge(reader, job, number)

    def replace_receipts(self, work: Work, job: Job, number: int, tasks: Sequence[Task], now: float) -> None:
        secure_steps.replace_receipts_by_mean(work, job, number, tasks, now)

    def count_noised_rounds(self, reader: RowReader, job_id: str, spec: JobSpec, merged: int) -> float:
        """Counts a round by its survivors, each of which has added its noise."""
        sums = reader.session.scalars(_SURVIVORS, {"job": job_id, "merged": merged})
        survivors = [int.from_bytes(packed, "big").bit_count() for packed in sums if packed]
        terms = build_sum_terms(spec)
        return sum_units.rounds_spent(terms.asked, len(terms.holders), survivors) + merged - len(survivors)


_SURVIVORS: Final = select(SecureSum.survivors).where(
    SecureSum.job_id == bindparam("job"), SecureSum.round < bindparam("merged")
)


class SecureSumsFeature(Feature):
    name = "secure_sums"
    needs = ("private",)
    stages = (secure_steps,)
    routers = (secure_routes.router,)
    round_sum = MaskedSum()

    def check_model(self, context: Context, spec: JobSpec, model: PublishedModel, manifest: Manifest) -> None:
        if spec.secure and any(model.layout.of("buffer")):
            untold = "the model has running statistics, and only gradients are summed: normalize by layer or group"
            raise JobRefused("data.secure_aggregation", untold)

    def bound_times(self, work: Work, now: float) -> int:
        return sum_rows.bound_times(work, now)
