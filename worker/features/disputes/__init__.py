"""Refereed disputes: a wallet stands by its answer to a task, or hears two that differ."""

from worker.feature import WorkerFeature
from worker.features.disputes import dispute_commands


class DisputesFeature(WorkerFeature):
    name = "disputes"
    wallet_commands = {"dispute": dispute_commands.app}
