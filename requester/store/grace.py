"""How long a round that has its least tasks still waits for the others. The rule is market.rules.stragglers."""

from typing import Final

from sqlalchemy import select

from gradmarket.market.rules import stragglers
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import ReplicaState, TaskState
from requester.store import jobs, merges, paces
from requester.store.tables import Job, Replica, Round, Task
from requester.store.work import RowReader

NOTHING: Final = 0.0


def compute_grace_seconds_left(reader: RowReader, job: Job, row: Round, now: float) -> float:
    """Returns the seconds that an open round waits yet; none where it merges with its last task."""
    spec = jobs.load_spec(job)
    if not spec.leaves_tasks:
        return NOTHING
    accepted = select(Task.ended_at).where(*merges.merged_in(job.id, row.number), Task.state == TaskState.ACCEPTED)
    times = reader.session.scalars(accepted.order_by(Task.ended_at)).all()
    if len(times) < spec.tasks_needed:
        return NOTHING
    enough_at = max(row.opened_at, times[spec.tasks_needed - 1] or 0.0)
    usual = stragglers.compute_pace(paces.of_job(reader, job.id, row.number).of_class())
    ends = [end - enough_at for end in _list_expected_times(reader, row, enough_at)]
    return max(NOTHING, enough_at + stragglers.grace_s(ends, usual, spec.deadlines.wave_s) - now)


def _list_expected_times(reader: RowReader, row: Round, now: float) -> list[float]:
    """Returns when each answer that the round may still get is expected; what is committed, at once."""
    waiting = Task.state.in_(merges.UNACCEPTED), Replica.state.in_(IN_FLIGHT)
    replicas = select(Replica.state, Replica.expected_at, Replica.lease_until).join(Task, Task.id == Replica.task_id)
    rows = reader.session.execute(replicas.where(*merges.merged_in(row.job_id, row.number), *waiting))
    return [(expected or until) if state == ReplicaState.LEASED else now for state, expected, until in rows]
