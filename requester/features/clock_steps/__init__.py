"""Clocks that step: times that the kernel stored ahead are brought back once a clock was set back.

A worker that is suspended, rests or holds a lease for an hour too long otherwise stays so; nothing else looks at these
rows.
"""

from contextlib import suppress
from typing import Final

import structlog
from sqlalchemy import func, select, update
from sqlalchemy.exc import SQLAlchemyError

from gradmarket.market.rules import stragglers
from gradmarket.market.rules.newcomers import LONGEST_REST_S
from gradmarket.market.terms import ReplicaState, TaskState
from requester.context import Context
from requester.feature import Feature
from requester.features.clock_steps.steady_clock import SteadyClock
from requester.store import stored_times
from requester.store.locks import retry_on_conflict
from requester.store.stored_times import SLACK_S, bound_row_times, count_changed_rows, set_at_most, shift_times
from requester.store.tables import Account, Job, LeaderLease, Replica, Reputation, Strike, Task, Transaction, Worker
from requester.store.work import Work
from requester.store.workers import LIVE_S

log = structlog.get_logger("gradmarket.clock")

LONGEST_DUTY_S: Final = 60.0
RUNS: Final = (
    TaskState.OPEN,
    TaskState.COMMITTING,
    TaskState.REVEALING,
    TaskState.REFERRED,
    TaskState.UPLOADING,
)


AGES: Final = (Transaction.created_at, Transaction.sent_at)
"""Times by which a transaction is sent anew."""


@retry_on_conflict
def mend_times(context: Context) -> None:
    """Brings back all times ahead of the clock, in a transaction of its own."""
    now = context.clock()
    with context.begin() as work:
        changed = stored_times.bring_back(work, now)
    if changed:
        log.warning("times that were stored ahead are brought back", rows=changed)


class ClockStepsFeature(Feature):
    name = "clock_steps"

    def open_clock(self) -> SteadyClock:
        return SteadyClock()

    def look_after(self, context: Context) -> None:
        if isinstance(context.clock, SteadyClock):
            with suppress(SQLAlchemyError):
                context.clock.after_fall(lambda: mend_times(context))

    def bound_times(self, work: Work, now: float) -> int:
        # times ahead of `now`, or of `now` and the longest that their rule gives
        changed = shift_times(work, now, Strike.at, Strike.until, Strike.withheld_until)
        changed += shift_times(work, now, Worker.seen_at, Worker.asking_until)
        changed += shift_times(work, now, Account.stalled_at, Account.rests_until)
        changed += shift_times(work, now, Reputation.failed_at)
        changed += shift_times(work, now, Replica.leased_at, Replica.lease_until, Replica.expected_at)
        for age in AGES:
            changed += shift_times(work, now, age)
        # jobs that were made after `now` move back together, so that they stay in their order
        latest = work.session.scalar(select(func.max(Job.created_at))) or now
        if latest > now + SLACK_S:
            ahead = update(Job).where(Job.created_at > now + SLACK_S)
            changed += count_changed_rows(work, ahead.values(created_at=Job.created_at - (latest - now)))
        changed += set_at_most(work, Worker.asking_until, now + LIVE_S)
        changed += set_at_most(work, Account.rests_until, now + LONGEST_REST_S)
        changed += set_at_most(work, LeaderLease.until, now + LONGEST_DUTY_S, LeaderLease.holder != "")
        for task in work.session.scalars(select(Task).where(Task.state.in_(RUNS))):
            offer = task.offer
            latest_upload = stragglers.compute_latest_end(now, offer.upload_seconds)
            longest = {
                "created_at": now,
                "patience_until": now + offer.lease_seconds + offer.wave_seconds,
                "due_at": latest_upload if task.state == TaskState.UPLOADING else now + offer.wave_seconds,
                "due_most": latest_upload,
                "window_opened": now,
            }
            changed += bound_row_times(task, longest)
            leased = select(Replica).where(Replica.task_id == task.id, Replica.state == ReplicaState.LEASED)
            for replica in work.session.scalars(leased):
                changed += bound_row_times(replica, {"lease_until": now + offer.lease_seconds})
        # auditors hold claims as long as their tasks' offers allow
        for kind in (table for feature in work.session.info["features"] for table in feature.claimed_tables):
            claimed = select(kind, Task).join(Task, Task.id == kind.task_id).where(kind.claimed_until > now)
            for row, task in work.session.execute(claimed):
                changed += bound_row_times(row, {"claimed_until": now + task.offer.lease_seconds})
        return changed
