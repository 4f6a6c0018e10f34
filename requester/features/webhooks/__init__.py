"""Webhooks: what happens to a token's jobs is posted to addresses that it named, signed, until they took it."""

from collections.abc import Mapping, Sequence

from requester.feature import Feature
from requester.features.webhooks import sending, webhook_routes, webhook_rows
from requester.store.tables import Job, JobEvent
from requester.store.work import Work


class WebhooksFeature(Feature):
    name = "webhooks"
    stages = (sending,)
    routers = (webhook_routes.router,)

    def events_recorded(self, work: Work, events: Sequence[JobEvent]) -> None:
        webhook_rows.queue_events(work, events)

    def bound_times(self, work: Work, now: float) -> int:
        return webhook_rows.bound_times(work, now, now + sending.TRY_S + sending.LONGEST_WAIT_S)

    def token_told(self, work: Work, job: Job, token: str, kind: str, told: Mapping[str, object], at: float) -> None:
        webhook_rows.queue_for_token(work, job, token, kind, told, at)
