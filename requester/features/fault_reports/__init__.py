"""Faults that workers report of a job's own steps: what separate workers report alike pauses the job."""

from requester.context import Context
from requester.feature import Feature
from requester.features.fault_reports import job_faults
from requester.store.in_hand import TaskInHand
from requester.store.work import Work


class FaultReportsFeature(Feature):
    name = "fault_reports"

    def blame_job(self, context: Context, work: Work, hand: TaskInHand, in_vain: bool) -> bool:
        return job_faults.pause_faulty_job(context, work, hand, in_vain)
