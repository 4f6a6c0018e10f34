"""Planted tasks: an idle auditor computes tasks before anybody answers them, and public figures say what that shows."""

from collections.abc import Mapping

from starlette.datastructures import State

from gradmarket.market.views.trust_views import TrustView
from requester.api.response_cache import Recent
from requester.context import Context
from requester.features.audits.audit_kind import AuditingFeature
from requester.features.planted import trust_figures, trust_routes
from requester.features.planted.planted_rows import PlantedAnswer
from requester.features.planted.planting import PlantingAudits
from requester.store import jobs
from requester.store.tables import Job
from requester.store.work import RowReader


class PlantedFeature(AuditingFeature):
    name = "planted"
    needs = ("audits",)
    routers = (trust_routes.router,)
    audit_kind = PlantingAudits()
    claimed_tables = (PlantedAnswer,)

    def open_caches(self, state: State, context: Context) -> None:
        state.trust = Recent[TrustView](state.strangers_share)

    def describe_job(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        trust = trust_figures.load_trust(reader, job) if jobs.load_spec(job).audited else None
        return {"trust": trust if trust and (trust.share or trust.panels) else None}
