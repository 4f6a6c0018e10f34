"""Clocks that step: what the kernel stored ahead of the time is brought back once a clock was set back."""

from requester.feature import Feature
from requester.features.clock_steps import step_mending
from requester.store.work import Work


class ClockStepsFeature(Feature):
    name = "clock_steps"

    def bound_times(self, work: Work, now: float) -> int:
        return step_mending.bring_back_kernel_times(work, now)
