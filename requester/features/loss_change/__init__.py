"""Audits by scores, for jobs whose answers no second machine repeats; market.features.loss_change has the rule."""

from collections.abc import Mapping

from gradmarket.market.features import loss_change
from gradmarket.market.views.trust_views import ChangeView, ScoreView
from requester.features.audits.audit_kind import AuditingFeature
from requester.features.audits.audit_tables import Audit
from requester.features.loss_change import scores
from requester.features.loss_change.scores import Score
from requester.features.loss_change.scoring import ScoredAudits
from requester.store.work import RowReader


class LossChangeFeature(AuditingFeature):
    name = "loss_change"
    needs = ("audits",)
    audit_kind = ScoredAudits()

    def describe_audit(self, reader: RowReader, row: Audit) -> Mapping[str, object]:
        score = reader.get(Score, row.task_id) if row.scored else None
        return {"score": None if score is None else build_score_view(score)}


def build_score_view(row: Score) -> ScoreView:
    total = row.total or 0.0
    return ScoreView(
        number=row.number or 0,
        operator=row.operator,
        accepted=_build_change_view(scores.build_accepted_change(row)),
        trusted=_build_change_view(scores.build_trusted_change(row)),
        honest=row.honest,
        total=total,
        convicts=loss_change.CONVICTS,
        verdict=loss_change.decide_change_verdict(total),
    )


def _build_change_view(change: loss_change.Change) -> ChangeView:
    return ChangeView(own=change.own, others=list(change.others), score=change.score, passes=change.passes)
