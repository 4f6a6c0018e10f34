"""Views of finished audits, and of an operator's record in a class."""

from collections.abc import Mapping
from typing import Any, Final

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.views.trust_views import AuditView, ReputationView
from requester.api.views.formats import format_time, sketch_view
from requester.store import reputations
from requester.store.tables import Audit, Reputation

NOTHING: Final[Mapping[str, object]] = {}


def audit_view(
    row: Audit, published: bool, audit_sketch: Sketch | None = None, more: Mapping[str, object] = NOTHING
) -> AuditView:
    """Returns the view of an audit. `published`: the task's answer may be shown (store.disclosure).

    `more`: what the features describe of it.
    """
    told: dict[str, Any] = {"accusations": [], "score": None, **more}
    return AuditView(
        task=row.task_id,
        round=row.round,
        state=row.state,
        rate=row.rate,
        reason=row.reason,
        determinism_class=row.determinism_class,
        root=row.root if published else None,
        sketch=sketch_view(audit_sketch) if published else None,
        window=row.window,
        runs=row.runs,
        seconds=row.seconds,
        ended_at=format_time(row.ended_at),
        **told,
    )


def reputation_view(row: Reputation, now: float) -> ReputationView:
    return ReputationView(
        determinism_class=row.determinism_class,
        standing=reputations.compute_operator_standing(row, max(now, row.at)),
        passed=row.passed,
        failed=row.failed,
        failed_at=format_time(row.failed_at),
    )
