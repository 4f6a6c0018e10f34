"""Audits by windows: the worker brings the states that audits of its answers ask for."""

from worker.feature import WorkerFeature
from worker.features.windows.window_states import WindowStates
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder


class WindowStatesFeature(WorkerFeature):
    name = "windows"

    def open_session_part(self, context: WorkerContext, replica_files: InFlightFolder) -> WindowStates:
        return WindowStates(context, replica_files)
