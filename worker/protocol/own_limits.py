"""The limits in the worker's settings: for the runner's child, and for offers."""

from dataclasses import asdict

from gradmarket.compute.machine import MachineLimits
from gradmarket.market.money import TokenUnit
from gradmarket.runner import RunnerSettings
from gradmarket.runner.machine_limits import choose_memory
from worker.protocol.policy import WorkLimits
from worker.settings import WorkerSettings


def runner_settings(settings: WorkerSettings) -> RunnerSettings:
    return RunnerSettings(
        memory_bytes=memory_of(settings),
        seconds=settings.step_s,
        operations=int(settings.max_flops),
    )


def memory_of(settings: WorkerSettings) -> int:
    return settings.max_memory or choose_memory()


def machine_limits(settings: WorkerSettings) -> MachineLimits:
    return MachineLimits(
        max_flops=settings.max_flops,
        max_memory=memory_of(settings),
        max_disk=settings.max_disk,
        device=settings.device,
    )


def limits_of(settings: WorkerSettings, money: TokenUnit) -> WorkLimits:
    """Returns the limits in a market that pays in `money`. Raises Refused for an amount in another token."""
    return WorkLimits(
        **asdict(machine_limits(settings)),
        jobs=settings.jobs,
        min_price=money.parse(settings.min_price),
        min_per_tflop=money.parse(settings.min_per_tflop),
        min_per_hour=money.parse(settings.min_per_hour),
        redeem_at=None if settings.redeem_at is None else money.parse(settings.redeem_at),
        leases=settings.leases,
        unpaid=settings.unpaid,
        margin_s=settings.margin_s,
        vest_s=settings.vest_s,
        validators=settings.validators,
    )
