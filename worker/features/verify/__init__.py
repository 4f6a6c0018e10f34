"""`wallet verify`: proves everything that this worker received again, by its records and the chain."""

from worker.feature import WorkerFeature
from worker.features.verify import head_commands
from worker.features.verify.self_check import verify


class VerifyFeature(WorkerFeature):
    name = "verify"
    needs = ("audits", "disputes", "log", "tolerance")
    wallet_commands = {"verify": verify, "heads": head_commands.app}
