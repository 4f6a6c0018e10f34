"""Spending: a token's budget of a day. What would go beyond it is refused; from four fifths on there is an alarm."""

from collections.abc import Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from gradmarket.market.terms import Amount, Units
from requester.context import Context
from requester.feature import Feature
from requester.features.spending import limit_routes, limits
from requester.store.tables import Job, JobEvent
from requester.store.work import RowReader, Work


class SpendingFeature(Feature):
    name = "spending"
    needs = ("api_tokens",)
    routers = (limit_routes.router,)

    def budget_raised(self, context: Context, work: Work, job: Job, token: str, amount: Amount) -> None:
        limits.spend(context, work, job, token, amount)

    def events_recorded(self, work: Work, events: Sequence[JobEvent]) -> None:
        for event in events:
            if event.kind == "funded":
                limits.date_deposits(work, [event.job_id], event.at)

    def topped_up(self, work: Work, job: Job, amount: Units, at: float) -> None:
        limits.date_top_up(work, job, amount, at)

    def bound_times(self, work: Work, now: float) -> int:
        return limits.bound_times(work, now)

    def metrics(self, reader: RowReader, now: float) -> Iterable[Metric]:
        family = GaugeMetricFamily("gradmarket_spent_share", "Share of its budget of a day spent", labels=["token"])
        for row in limits.list_limits(reader):
            a_day, spent = int(row.a_day), limits.find_token_room(reader, row, Amount(0), now).spent
            family.add_metric([row.token], spent / a_day if a_day else 1.0)
        yield family
