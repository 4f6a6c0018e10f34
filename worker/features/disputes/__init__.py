"""Refereed disputes: a worker defends its answer to a task, or hears two that differ."""

from worker.feature import WorkerFeature
from worker.features.disputes import dispute_commands
from worker.features.disputes.own_hearings import OwnHearings
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder


class DisputesFeature(WorkerFeature):
    name = "disputes"
    needs = ("auditors", "log")
    wallet_commands = {"dispute": dispute_commands.app}

    def open_session_part(self, context: WorkerContext, replica_files: InFlightFolder) -> OwnHearings:
        return OwnHearings(context, replica_files)
