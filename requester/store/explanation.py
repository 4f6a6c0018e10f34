"""Explains why a job waits, or why a worker gets no lease; by default with the stored reason."""

from requester.store.tables import Job
from requester.store.work import RowReader


class Explanation:
    def explain_no_lease(self, reader: RowReader, worker: str, now: float) -> str:
        """Called while a poll is answered that brings no lease; returns one reason that names a remedy."""
        return ""

    def explain_wait(self, reader: RowReader, job: Job, now: float) -> str:
        """Returns why the job waits; empty while it makes progress, or has ended without a reason."""
        return job.reason

    def describe_checks(self, reader: RowReader, job: Job, now: float) -> str:
        """Names in one sentence the party that decides about the job's answers now, if an auditor takes part."""
        return ""


def explanation_of(reader: RowReader) -> Explanation:
    found: list[Explanation | None] = [feature.explanation for feature in reader.session.info["features"]]
    return next((one for one in found if one is not None), Explanation())
