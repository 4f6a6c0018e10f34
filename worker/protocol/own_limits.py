"""What the worker's settings allow: to the runner's child, and of an offer."""

from gradmarket.runner import RunnerSettings
from gradmarket.worker.protocol.policy import WorkLimits
from gradmarket.worker.settings import WorkerSettings


def runner_settings(settings: WorkerSettings) -> RunnerSettings:
    return RunnerSettings(
        threads=settings.threads,
        device=settings.device,
        memory_bytes=settings.max_memory,
        seconds=settings.step_s,
        operations=int(settings.max_flops),
    )


def limits_of(settings: WorkerSettings) -> WorkLimits:
    return WorkLimits(
        jobs=settings.jobs,
        min_price=settings.min_price,
        min_per_tflop=settings.min_per_tflop,
        min_per_hour=settings.min_per_hour,
        leases=settings.leases,
        unpaid=settings.unpaid,
        margin_s=settings.margin_s,
        max_flops=settings.max_flops,
        max_memory=settings.max_memory,
        max_disk=settings.max_disk,
        device=settings.device,
    )
