"""Views of finished audits, scores and accusations, and of an operator's record in a class."""

from collections.abc import Iterable

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.rules import loss_change_test
from gradmarket.market.views.trust_views import AccusationView, AuditView, ChangeView, ReputationView, ScoreView
from requester.api.views.formats import format_hex, format_time, sketch_view
from requester.store import reputations, scores
from requester.store.tables import Accusation, Audit, Reputation, Score


def accusation_view(row: Accusation) -> AccusationView:
    return AccusationView(
        worker=row.worker,
        state=row.state,
        case=format_hex(row.case),
        event=format_hex(row.event),
        amount=row.amount,
        until=format_time(row.until),
    )


def score_view(row: Score) -> ScoreView:
    total = row.total or 0.0
    return ScoreView(
        number=row.number or 0,
        operator=row.operator,
        accepted=_change_view(scores.build_accepted_change(row)),
        trusted=_change_view(scores.build_trusted_change(row)),
        honest=row.honest,
        total=total,
        convicts=loss_change_test.CONVICTS,
        verdict=loss_change_test.decide_change_verdict(total),
    )


def _change_view(change: loss_change_test.Change) -> ChangeView:
    return ChangeView(own=change.own, others=list(change.others), score=change.score, passes=change.passes)


def audit_view(
    row: Audit,
    published: bool,
    accusations: Iterable[Accusation] = (),
    audit_sketch: Sketch | None = None,
    score: Score | None = None,
) -> AuditView:
    """Returns the view of an audit. `published`: the task's answer may be shown (store.disclosure)."""
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
        accusations=[accusation_view(accusation) for accusation in accusations],
        score=None if score is None else score_view(score),
    )


def reputation_view(row: Reputation, now: float) -> ReputationView:
    return ReputationView(
        determinism_class=row.determinism_class,
        standing=reputations.compute_operator_standing(row, max(now, row.at)),
        passed=row.passed,
        failed=row.failed,
        failed_at=format_time(row.failed_at),
    )
