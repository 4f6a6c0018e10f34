"""Checks at every merge whether an operator's accepted answers, each of which passed, together push the model one way.

The rule is market.features.drift. An alarm is logged and convicts nobody: the requester decides what to do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import select

from gradmarket.market.features import drift
from gradmarket.market.features.drift import Contribution
from gradmarket.market.gradient.payload import decode_shards
from gradmarket.market.terms import Hash, ReplicaState, domain_hash
from gradmarket.market.views.job_views import DriftView
from requester.context import Context
from requester.feature import Feature, MergeWatch
from requester.features.drift import lean_rows
from requester.moves.replay import MergeInputs
from requester.store import jobs
from requester.store.among import is_in_bound_list
from requester.store.tables import Job, Replica, Round, Task
from requester.store.work import RowReader, Work, record_event

TOLD: Final = "accepted answers of {} push the model one way, by more than honest errors do"


def seed_of(job: Job) -> Hash:
    """Returns the seed of the sketches, which stays secret: an operator that knew it could lean unseen."""
    return domain_hash("drift", job.secret)


class DriftWatch(MergeWatch):
    """Watches one merge; `groups`: for each answer, the operators that agreed on it."""

    def __init__(self, groups: Sequence[frozenset[str]], seed: Hash) -> None:
        self._groups = groups
        self._seed = seed
        self._contributions: list[Contribution] = []

    @classmethod
    def of_merge(cls, reader: RowReader, job: Job, used: Sequence[Task]) -> "DriftWatch":
        """Builds the watch of a merge without operators whose answer is only near the payload: it is not merged."""
        # the operators whose answer is the task's payload
        by_task: dict[str, set[str]] = {task.id: set() for task in used}
        for task_id, operator in reader.session.execute(_PAID, {"tasks": list(by_task)}):
            by_task[task_id].add(operator)
        return cls([frozenset(by_task[task.id]) for task in used], seed_of(job))

    def measure(self, context: Context, inputs: MergeInputs) -> None:
        """Sketches the answers, each read shard by shard; none if nothing could be compared.

        Nothing can be in a private job, where each holder's honest answers lean as its rows do.
        """
        self._contributions = []
        if inputs.spec.private or not drift.has_comparable_groups(self._groups):
            return
        recipe = inputs.recipe
        for (blob, task_seed), group in zip(inputs.answers, self._groups, strict=True):
            with context.blobs.mapped(blob) as data:
                shards = decode_shards(recipe.layout, data, recipe.codec, task_seed)
                self._contributions.append(
                    Contribution(group, drift.sketch_gradient(recipe.layout, shards, self._seed))
                )

    def close(self, work: Work, job: Job, row: Round, now: float) -> None:
        record_leans(work, job, row, self._contributions, now)


def record_leans(work: Work, job: Job, row: Round, answers: Sequence[Contribution], now: float) -> None:
    """Stores the leans after the round and records an event for those over the limit."""
    rows = lean_rows.of_job(work, job.id)
    before = lean_rows.list_sums_before(rows, row.number)
    after = drift.after_round(before, answers)
    changed = {operator: lean for operator, lean in after.items() if lean is not before.get(operator)}
    needed_from = row.number - jobs.load_spec(job).final_after
    lean_rows.store_leans(work, job.id, row.number, rows, changed, needed_from)
    over = drift.list_leaning_operators(after)
    row.drift = {"operators": len(after), "leaning": over} if after else None
    if over:
        job.reason = TOLD.format(", ".join(over))
    for operator in set(over) - set(drift.list_leaning_operators(before)):
        lean = after[operator]
        measured = {
            "lean": lean.ratio,
            "limit": drift.compute_lean_limit(lean.rounds, len(after)),
            "rounds": lean.rounds,
        }
        record_event(work, job.id, "leaning", now, round=row.number, operator=operator, **measured)


_PAID: Final = (
    select(Replica.task_id, Replica.operator)
    .join(Task, Task.id == Replica.task_id)
    .where(is_in_bound_list(Replica.task_id, "tasks"), Replica.state == ReplicaState.PAYABLE, Replica.root == Task.root)
)


class DriftFeature(Feature):
    name = "drift"

    def watch_merge(self, reader: RowReader, job: Job, used: Sequence[Task]) -> DriftWatch:
        return DriftWatch.of_merge(reader, job, used)

    def describe_round(self, row: Round) -> Mapping[str, object]:
        return {"drift": DriftView(**row.drift) if row.drift else None}

    def metrics(self, reader: RowReader, now: float) -> Iterable[Metric]:
        """Yields the number of leaning operators of each job that has not ended, by its newest merge."""
        text = "Operators whose accepted answers push the model one way"
        family = GaugeMetricFamily("gradmarket_leaning_operators", text, labels=["job"])
        for job_id, found in lean_rows.newest_drifts(reader):
            family.add_metric([job_id], len(found["leaning"]))
        yield family
