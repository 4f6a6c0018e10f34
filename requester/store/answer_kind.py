"""The kind of a job's answers: the questions that the kernel asks a feature, and the defaults without one."""

from collections.abc import Sequence

from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Address
from requester.store import jobs, set_aside
from requester.store.tables import Job, Task
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

        By default these are the workers set aside (store.set_aside).
        """
        rounds, again = {task.round for task in tasks}, {task.round for task in tasks if task.attempt}
        aside = set_aside.list_set_aside(reader, job, again) if again else {}
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
