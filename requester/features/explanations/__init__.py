"""Explanations: why a job makes no progress, who decides about its answers, and why a worker gets no lease."""

from requester.feature import Feature
from requester.features.explanations import job_waits, lease_reasons
from requester.store.answer_kind import Explanation
from requester.store.tables import Job
from requester.store.work import RowReader


class NamedRemedies(Explanation):
    def explain_no_lease(self, reader: RowReader, worker: str, now: float) -> str:
        return lease_reasons.find_lease_reason(reader, worker, now).words

    def explain_wait(self, reader: RowReader, job: Job, now: float) -> str:
        return job_waits.why_waiting(reader, job, now)

    def describe_checks(self, reader: RowReader, job: Job, now: float) -> str:
        return job_waits.describe_checks(reader, job, now)


class ExplanationsFeature(Feature):
    name = "explanations"
    needs = ("audits", "proven")
    explanation = NamedRemedies()
