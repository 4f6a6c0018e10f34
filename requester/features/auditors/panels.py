"""The stage that goes on with panels whose auditors let their time pass."""

from collections.abc import Sequence
from typing import Final

from gradmarket.market.terms import AuditState
from requester.context import Context
from requester.features.auditors import panel_exchange, panel_rows
from requester.features.audits.audit_tables import Audit
from requester.store.locks import lock_row
from requester.store.tables import Task
from requester.store.work import RowReader

TOPIC: Final = "panels"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return panel_rows.list_overdue_panels(reader, now)


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as work:
        task, audit = lock_row(work, Task, task_id), lock_row(work, Audit, task_id)
        if audit.state == AuditState.DUE:
            panel_exchange.end_overdue_seats(work, task, audit, context.clock())
    return None
