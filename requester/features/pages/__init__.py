"""The web page: the API's public data for human readers, and a form for tokens that may submit jobs."""

from typing import Final

from starlette.datastructures import State

from requester.context import Context
from requester.feature import Feature
from requester.features.answer_cache import Recent, Share
from requester.features.pages import page_routes
from requester.features.pages.live_parts import LiveParts

PAGES_SHARE: Final = 8.0
"""Of this many seconds one may go into rendering pages."""


class PagesFeature(Feature):
    name = "pages"
    needs = (
        *("answer_cache", "audits", "coverage", "described_api", "event_streams", "explanations", "health", "metrics"),
        *("price_guide", "records", "reputation"),
    )
    routers = (page_routes.router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.rendered = Recent[str](Share(pause=PAGES_SHARE))
        state.pays = Recent[str](Share())
        state.live = LiveParts(context)
