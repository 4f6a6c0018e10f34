"""What is told of a job that waits, and of the lease that a worker does not get; by default the stored reason."""

from requester.store.tables import Job
from requester.store.work import RowReader


class Explanation:
    def explain_no_lease(self, reader: RowReader, worker: str, now: float) -> str:
        """Called while a poll is answered that brings no lease; returns one reason that names what would change it."""
        return ""

    def explain_wait(self, reader: RowReader, job: Job, now: float) -> str:
        """Returns why the job waits; empty while it makes progress, or has ended without a reason."""
        return job.reason

    def describe_checks(self, reader: RowReader, job: Job, now: float) -> str:
        """Returns in one sentence who decides about the job's answers just now, where that depends on an auditor."""
        return ""


def explanation_of(reader: RowReader) -> Explanation:
    found: list[Explanation | None] = [feature.explanation for feature in reader.session.info["features"]]
    return next((one for one in found if one is not None), Explanation())
