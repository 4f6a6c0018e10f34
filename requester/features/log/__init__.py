"""The append-only log of each job: its leaves, the heads that batches carry on-chain, and proofs (log.job_log)."""

from starlette.datastructures import State

from gradmarket.market.features.log.merkle import GrowingTree
from gradmarket.market.messages import LogHead
from requester.api.response_cache import Recent
from requester.chain.chain_context import ChainContext
from requester.context import Context
from requester.feature import Feature
from requester.features.log import leaf_rows, log_routes
from requester.store.tables import Job
from requester.store.work import Work


class LogFeature(Feature):
    name = "log"
    routers = (log_routes.router,)

    def extend_log(self, chain: ChainContext, job_id: str) -> LogHead | None:
        return leaf_rows.extend_log(chain, job_id)

    def job_collected(self, work: Work, job: Job, now: float) -> None:
        leaf_rows.append_leaves(work, job)

    def open_caches(self, state: State, context: Context) -> None:
        state.logs = Recent[GrowingTree](state.strangers_share)
