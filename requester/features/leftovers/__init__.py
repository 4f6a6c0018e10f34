"""Leftovers: rows of strangers that nobody needs any more are deleted."""

from requester.feature import Feature
from requester.features.leftovers import leftover_rows
from requester.store.work import Work


class LeftoversFeature(Feature):
    name = "leftovers"
    stages = (leftover_rows,)

    def bound_times(self, work: Work, now: float) -> int:
        return leftover_rows.bound_times(work, now)
