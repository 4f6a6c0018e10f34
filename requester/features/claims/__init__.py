"""Claims: auditors from outside prove that they computed a round, by a digest that was withheld until they sent it."""

from collections.abc import Sequence

from gradmarket.market.features import claims as claim_messages
from requester.context import Context
from requester.feature import Feature, MergeWatch
from requester.features.claims import claim_routes, claim_rows
from requester.features.claims.claim_watch import ClaimWatch
from requester.store import jobs
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work


class ClaimsFeature(Feature):
    name = "claims"
    routers = (claim_routes.router,)

    def watch_merge(self, reader: RowReader, job: Job, used: Sequence[Task]) -> MergeWatch | None:
        audit = jobs.load_spec(job).audit
        if audit is None or not audit.claims or not used:
            return None
        number = used[0].merge_round
        return ClaimWatch([claim_messages.derive_claim_key(job.secret, number, one) for one in range(audit.claims)])

    def rounds_undone(self, context: Context, work: Work, job: Job, first: int, now: float) -> None:
        claim_rows.delete_claims(work, job.id, first)
