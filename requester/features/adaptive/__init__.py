"""Adaptive replication: a worker with a record, and with a stake that covers its work, is checked less."""

from requester.feature import Feature
from requester.features.adaptive.lead_candidates import LeadPool
from requester.moves.candidates import CandidatePool
from requester.store import jobs
from requester.store.tables import Job
from requester.store.work import RowReader


class AdaptiveFeature(Feature):
    name = "adaptive"
    needs = ("audits", "reputation")

    def choose_pool(self, reader: RowReader, job: Job, now: float) -> type[CandidatePool] | None:
        return None if jobs.load_spec(job).gain is None else LeadPool
