"""View of an operator's record in a class."""

from gradmarket.market.views.trust_views import ReputationView
from requester.api.views.formats import format_time
from requester.store import reputations
from requester.store.tables import Reputation


def reputation_view(row: Reputation, now: float) -> ReputationView:
    return ReputationView(
        determinism_class=row.determinism_class,
        standing=reputations.compute_operator_standing(row, max(now, row.at)),
        passed=row.passed,
        failed=row.failed,
        failed_at=format_time(row.failed_at),
    )
