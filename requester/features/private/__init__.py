"""Private jobs: rows stay with their holders, drawn once a round, weighed by their rows, and paid by their worth."""

from collections.abc import Mapping, Sequence

from gradmarket.market.errors import JobRefused
from gradmarket.market.features.private.group_worth import known_updates
from gradmarket.market.features.private.holder_budget import build_holder_budget
from gradmarket.market.features.private.row_budget import build_row_spending
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Manifest
from gradmarket.market.terms import Address
from gradmarket.market.views.job_views import PrivacyView, RowPrivacyView
from requester.context import Context
from requester.feature import Feature, MergeWatch
from requester.features.private import holder_routes, holder_rows, worth_pay
from requester.model_runner import PublishedModel
from requester.moves.replay import MergeInputs
from requester.store import jobs
from requester.store.answer_kind import AnswerKind
from requester.store.facts import layout_of
from requester.store.round_sum import count_noised_rounds
from requester.store.tables import Job, Task
from requester.store.work import RowReader


class HoldersAnswers(AnswerKind):
    """No other worker can compute such an answer again."""

    def takes(self, spec: JobSpec) -> bool:
        return spec.private is not None

    def list_unavailable_by_round(
        self, reader: RowReader, job: Job, tasks: Sequence[Task]
    ) -> dict[int, frozenset[Address]]:
        return holder_rows.list_unavailable_by_round(reader, job, tasks)

    def compute_merge_weights(self, reader: RowReader, job: Job, tasks: Sequence[Task]) -> tuple[float, ...]:
        return holder_rows.compute_merge_weights(reader, job, tasks)

    def count_earlier_rounds(self, job: Job) -> int:
        """Returns the rounds before the merged one whose updates are subtracted from answers that are paid by worth."""
        return 0 if jobs.load_spec(job).by_worth is None else known_updates(layout_of(job))

    def describe_absence(self, reader: RowReader, job: Job) -> str:
        return holder_rows.describe_absence(reader, job)


class WorthWatch(MergeWatch):
    """Pays the answers of a job that is paid by worth, before the round closes."""

    def __init__(self, job: Job) -> None:
        self._job, self._publication = job.id, jobs.load_publication(job)

    def measure(self, context: Context, inputs: MergeInputs) -> None:
        worths = worth_pay.measure_worth(context, self._job, inputs, self._publication)
        worth_pay.pay_by_worth(context, self._job, inputs.number, worths, context.clock())


def row_privacy_view(spec: JobSpec, rounds: int) -> RowPrivacyView | None:
    """Returns the privacy loss of one row after `rounds` merged rounds, where the job bounds it."""
    if (rows := build_row_spending(spec)) is None:
        return None
    counted = {"spent": rows.spent(rounds), "uses": rows.uses_after(rounds)}
    return RowPrivacyView(epsilon=rows.asked.epsilon, delta=rows.asked.delta, rounds=rows.rounds, **counted)


class PrivateFeature(Feature):
    name = "private"
    needs = ("evaluations",)
    routers = (holder_routes.router,)
    answer_kind = HoldersAnswers()

    def check_model(self, context: Context, spec: JobSpec, model: PublishedModel, manifest: Manifest) -> None:
        if spec.privacy and any(model.layout.of("buffer")):
            noiseless = "the model has running statistics, which get no noise: normalize by layer or group"
            raise JobRefused("privacy", noiseless)

    def watch_merge(self, reader: RowReader, job: Job, used: Sequence[Task]) -> MergeWatch | None:
        return None if jobs.load_spec(job).by_worth is None else WorthWatch(job)

    def describe_job(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        spec = jobs.load_spec(job)
        if spec.privacy is None and not spec.step.by_row:
            return {}
        newest = jobs.latest_closed(reader, job.id)
        merged, found = newest.number + 1 if newest else 0, dict[str, object]()
        if (budget := build_holder_budget(spec)) is not None:
            noised = count_noised_rounds(reader, job.id, spec, merged) if merged else 0.0
            # the loss of one holder after rounds of the least noise
            asked, spent = budget.asked, budget.after(noised)
            found["privacy"] = PrivacyView(epsilon=asked.epsilon, delta=asked.delta, spent=spent, rounds=budget.rounds)
        return found | {"row_privacy": row_privacy_view(spec, merged)}
