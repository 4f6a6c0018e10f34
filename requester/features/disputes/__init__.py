"""Refereed disputes: this service hears answers that differ, and computes the one operation where they part."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from requester.context import Context
from requester.feature import Feature
from requester.features.disputes import hearing_routes, hearing_rows, hearings
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work


class HearingsFeature(Feature):
    name = "disputes"
    needs = ("log",)
    stages = (hearings,)
    routers = (hearing_routes.router,)
    log_records = (hearing_rows.RULINGS,)

    @contextmanager
    def serve_beside(self, context: Context, here: str) -> Iterator[None]:
        hearings.renew_questions(context)
        yield

    def bound_times(self, work: Work, now: float) -> int:
        return hearing_rows.bound_times(work, now)

    def hear_task(self, work: Work, task: Task, now: float, run: int | None = None) -> None:
        hearing_rows.begin_dispute(work, task, now, run)
        work.notify(hearings.TOPIC)

    def describe_wait(self, reader: RowReader, job: Job) -> str:
        counts = zip(hearing_rows.count_open_hearings(reader, job), ("workers", "auditors"), strict=True)
        heard = [(who, "a task" if count == 1 else f"{count} tasks") for count, who in counts if count]
        return "; ".join(f"a referee hears {who} whose answers to {what} differ" for who, what in heard)

    def describe_task(self, reader: RowReader, row: Task) -> Mapping[str, object]:
        heard = hearing_rows.list_hearings(reader, row.id)
        return {"hearings": [each.publish() for each in heard]} if heard else {}
