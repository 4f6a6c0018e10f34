"""A job's events as a stream, for those that follow it."""

from starlette.datastructures import State

from requester.context import Context
from requester.feature import Feature
from requester.features.event_streams import event_routes
from requester.features.event_streams.event_tail import EventTails


class EventStreamsFeature(Feature):
    name = "event_streams"
    routers = (event_routes.router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.following = EventTails(context)
