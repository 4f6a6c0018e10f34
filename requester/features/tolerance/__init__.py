"""Thresholds by which answers of two determinism classes are compared, learnt from trusted runs of auditors."""

from gradmarket.market.features.tolerance import check_tensor_count
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Manifest
from gradmarket.market.rules import overlap
from gradmarket.market.rules.verifiers.tolerance import Allowed
from requester.context import Context
from requester.features.audits.audit_kind import Asker, AuditingFeature, AuditKind, OtherWork
from requester.features.audits.audit_tables import Audit
from requester.features.tolerance import calibrating, calibration_routes, calibrations, trusted_runs
from requester.features.tolerance.trusted_runs import TrustedRun
from requester.model_runner import PublishedModel
from requester.moves import blob_cleanup
from requester.moves.replay import MergedRound
from requester.store import jobs
from requester.store.tables import Job, Round
from requester.store.work import RowReader, Work


class CalibratingAudits(AuditKind):
    def find_other_work(self, work: Work, asker: Asker, now: float) -> OtherWork | None:
        run = calibrating.claim_trusted_run(work, asker.auditor, asker.determinism_class, now)
        return None if run is None else OtherWork(run.task_id, run.runs, {"calibrates": True})

    def record_pass(self, work: Work, job: Job, audit: Audit, now: float) -> None:
        calibrating.record_trusted_run(work, job, audit, now)


class ToleranceFeature(AuditingFeature):
    name = "tolerance"
    needs = ("audits",)
    routers = (calibration_routes.router,)
    audit_kind = CalibratingAudits()
    claimed_tables = (TrustedRun,)

    def check_model(self, context: Context, spec: JobSpec, model: PublishedModel, manifest: Manifest) -> None:
        if spec.verifier.sketched:
            check_tensor_count(model.layout)

    def load_thresholds(self, reader: RowReader, job: Job) -> Allowed:
        return calibrations.load_thresholds(reader, job)

    def round_closing(self, work: Work, job: Job, row: Round, merged: MergedRound, now: float) -> None:
        spec = jobs.load_spec(job)
        if spec.verifier.sketched:
            first_kept = row.number - blob_cleanup.kept_newest(spec) + 2  # whose parameters are still kept
            trusted_runs.drop_sketches(work, job.id, TrustedRun.round < first_kept)

    def rounds_undone(self, context: Context, work: Work, job: Job, first: int, now: float) -> None:
        spec = jobs.load_spec(job)
        if spec.verifier.sketched:
            last_unharmed = overlap.last_unharmed(first, spec.overlap)
            trusted_runs.drop_sketches(work, job.id, TrustedRun.round > last_unharmed)
