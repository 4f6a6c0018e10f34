"""Private jobs whose rounds are summed under masks: this holder's part in them (market.features.secure_sums)."""

from worker.feature import WorkerFeature
from worker.features.secure_sums.secure_rounds import SecureRounds
from worker.features.secure_sums.secure_state import SecureFolder
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder


class MaskedAnswersFeature(WorkerFeature):
    name = "secure_sums"
    needs = ("private",)

    def open_computation(self, context: WorkerContext, replica_files: InFlightFolder) -> SecureRounds:
        return SecureRounds(context, SecureFolder(replica_files.folder / "secure"))
