"""Takes the rounds of private jobs from step to step of their secure aggregation (secure_sums.secure_steps)."""

from collections.abc import Sequence

from gradmarket.market.terms import RoundState
from requester.context import Context
from requester.features.secure_sums import secure_steps, sum_rows
from requester.features.secure_sums.sum_rows import SUMMED
from requester.store.locks import hold_named_lock
from requester.store.ready_rows import limited
from requester.store.work import RowReader

TOPIC = "unmask"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return limited(list(dict.fromkeys([*sum_rows.list_due_jobs(reader, now), *sum_rows.jobs_over(reader)])))


def run(context: Context, job_id: str) -> float | None:
    with hold_named_lock(context.sessions, f"{TOPIC} {job_id}") as mine:
        if not mine:
            return context.settings.sweep_s
        secure_steps.forget_closed_sums(context, job_id)
        with context.reading() as reader:
            due = job_id in sum_rows.list_due_jobs(reader, context.clock())
            row = sum_rows.first_under_way(reader, job_id)
            begun = None if row is None else sum_rows.of_round(reader, job_id, row.number)
        if not due or row is None or row.state != RoundState.OPEN:
            return None
        if begun is None:
            return None if secure_steps.begin_aggregation(context, job_id) else context.settings.sweep_s
        if begun.step == SUMMED - 1:
            secure_steps.unmask_sum(context, job_id, begun.id)
        else:
            secure_steps.end_step(context, job_id, begun.id)
        return None
