"""The kind of a job's answers: the questions that the kernel asks a feature, and the defaults without one.

Beside it, the explanation of a job that waits; by default the stored reason.
"""

from collections.abc import Sequence

from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Address
from requester.store import jobs
from requester.store.tables import Job, Task
from requester.store.tasks import list_set_aside
from requester.store.work import RowReader


class AnswerKind:
    """By default any worker may compute an answer again, and all answers weigh alike."""

    def takes(self, spec: JobSpec) -> bool:
        """Returns whether the job's answers are of this kind."""
        return True

    def list_unavailable_by_round(
        self, reader: RowReader, job: Job, tasks: Sequence[Task]
    ) -> dict[int, frozenset[Address]]:
        """Called while workers are drawn; returns by the tasks' rounds the workers that get no further task there.

        By default these are the workers set aside (store.tasks).
        """
        rounds, again = {task.round for task in tasks}, {task.round for task in tasks if task.attempt}
        aside = list_set_aside(reader, job, again) if again else {}
        return dict.fromkeys(rounds, frozenset[Address]()) | aside

    def compute_merge_weights(self, reader: RowReader, job: Job, tasks: Sequence[Task]) -> tuple[float, ...]:
        """Called in the transaction that begins a merge; returns the factors that multiply the tasks' answers."""
        return (1.0,) * len(tasks)

    def count_earlier_rounds(self, job: Job) -> int:
        """Returns the number of rounds before the merged one whose parameters are needed, beside the newest."""
        return 0

    def describe_absence(self, reader: RowReader, job: Job) -> str:
        """Called while a job that has too few workers is read; names the missing workers where the kind knows them."""
        return ""


def answer_kind_of(reader: RowReader, job: Job) -> AnswerKind:
    """Returns the kind of the job's answers. Admission refuses a job whose kind no feature provides."""
    spec = jobs.load_spec(job)
    kinds: list[AnswerKind | None] = [feature.answer_kind for feature in reader.session.info["features"]]
    return next((kind for kind in kinds if kind is not None and kind.takes(spec)), AnswerKind())


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
