"""Views of audits."""

from collections.abc import Mapping
from typing import Any, Final

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import AUDIT_UNDER_WAY
from gradmarket.market.views.trust_views import AuditView
from requester.api.job_views import format_time, sketch_view
from requester.features.audits.audit_tables import Audit
from requester.store import ballots
from requester.store.tables import Job, Task
from requester.store.work import RowReader

NOTHING: Final[Mapping[str, object]] = {}


def view_audit(
    row: Audit, published: bool, audit_sketch: Sketch | None = None, more: Mapping[str, object] = NOTHING
) -> AuditView:
    """Returns the view of an audit.

    `published`: whether the task's answer may be shown (store.disclosure); a result is, once the audit is over.
    `more`: the features' fields of the view.
    """
    shown = published and row.state not in AUDIT_UNDER_WAY
    fields: dict[str, Any] = {"accusations": [], "score": None, **more}
    return AuditView(
        task=row.task_id,
        round=row.round,
        state=row.state,
        rate=row.rate,
        reason=row.reason,
        determinism_class=row.determinism_class,
        root=row.root if shown else None,
        sketch=sketch_view(audit_sketch) if shown else None,
        window=row.window,
        runs=row.runs,
        seconds=row.seconds,
        ended_at=format_time(row.ended_at),
        **fields,
    )


def load_audit_sketch(reader: RowReader, task: Task, audit: Audit) -> Sketch | None:
    """Returns the sketch of the auditor's payload, as far as it exists by now; None where roots are compared."""
    if task.allowed is None or audit.sketch is None:
        return None
    return sketch_packing.unpack_sketch(audit.sketch, ballots.list_tensor_names(reader.get_one(Job, task.job_id)))
