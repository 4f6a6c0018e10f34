"""Views of finished audits, scores and accusations, and of an operator's record in a class."""

from collections.abc import Iterable

from pydantic import BaseModel

from gradmarket.market.rules import loss_change_test
from gradmarket.market.rules.projection import Sketch
from gradmarket.market.terms import AccusationState, AuditState
from gradmarket.requester.api.views.formats import hexed, sketch_view, time
from gradmarket.requester.store import reputations, scores
from gradmarket.requester.store.tables import Accusation, Audit, Reputation, Score


class AccusationView(BaseModel):
    """`case` and `event` are the contract's (market.rules.accusing says of what); `until`: to contest, or to decide."""

    worker: str
    state: AccusationState
    case: str | None
    event: str | None
    amount: str
    until: str | None


def accusation_view(row: Accusation) -> AccusationView:
    return AccusationView(
        worker=row.worker,
        state=AccusationState(row.state),
        case=hexed(row.case),
        event=hexed(row.event),
        amount=row.amount,
        until=time(row.until),
    )


class ChangeView(BaseModel):
    """By how much a small step along a gradient lowered the loss on its task's rows, and on other draws of rows."""

    own: float
    others: list[float]
    score: float
    passes: bool


class ScoreView(BaseModel):
    """A gradient that was scored (rules.loss_change), and the auditor's own. The numbers follow the job's scores.

    `honest`: at least this share of honest gradients passes; null where too few trusted runs say so, and nothing is
    weighed. `total`: of the operator's weights until then; at `convicts` or above the audit failed.
    """

    number: int
    operator: str
    accepted: ChangeView
    trusted: ChangeView
    honest: float | None
    total: float
    convicts: float
    verdict: loss_change_test.ChangeVerdict


def score_view(row: Score) -> ScoreView:
    total = row.total or 0.0
    return ScoreView(
        number=row.number or 0,
        operator=row.operator,
        accepted=_change_view(scores.accepted(row)),
        trusted=_change_view(scores.trusted(row)),
        honest=row.honest,
        total=total,
        convicts=loss_change_test.CONVICTS,
        verdict=loss_change_test.verdict(total),
    )


def _change_view(change: loss_change_test.Change) -> ChangeView:
    return ChangeView(own=change.own, others=list(change.others), score=change.score, passes=change.passes)


class AuditView(BaseModel):
    """`rate`: the probability that the task was drawn with; `root`: what the auditor found, in `runs` runs.

    The root is told once no further attempt at the task can use it. Where answers are
    scored the root decided nothing; the list of a job's audits has the `score`.
    """

    task: str
    round: int
    state: AuditState
    rate: float
    reason: str
    determinism_class: str
    root: str | None
    sketch: dict[str, str] | None
    """The sketch of the auditor's answer, under the wave's seed; only in the evidence of tasks compared by sketches."""
    runs: int
    seconds: float | None
    ended_at: str | None
    accusations: list[AccusationView]
    score: ScoreView | None


def audit_view(
    row: Audit,
    published: bool,
    accusations: Iterable[Accusation] = (),
    found: Sketch | None = None,
    score: Score | None = None,
) -> AuditView:
    """Returns the view of an audit. `published`: the task's answer may be shown (store.disclosure)."""
    return AuditView(
        task=row.task_id,
        round=row.round,
        state=AuditState(row.state),
        rate=row.rate,
        reason=row.reason,
        determinism_class=row.determinism_class,
        root=row.root if published else None,
        sketch=sketch_view(found) if published else None,
        runs=row.runs,
        seconds=row.seconds,
        ended_at=time(row.ended_at),
        accusations=[accusation_view(accusation) for accusation in accusations],
        score=None if score is None else score_view(score),
    )


class ReputationView(BaseModel):
    """`standing`: at 95 % the least share of honest answers that so many passed audits show (rules.reputation)."""

    determinism_class: str
    standing: float
    passed: int
    failed: int
    failed_at: str | None


def reputation_view(row: Reputation, now: float) -> ReputationView:
    return ReputationView(
        determinism_class=row.determinism_class,
        standing=reputations.standing(row, max(now, row.at)),
        passed=row.passed,
        failed=row.failed,
        failed_at=time(row.failed_at),
    )
