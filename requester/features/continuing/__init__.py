"""Jobs that go on from another's end."""

from collections.abc import Mapping
from typing import Any

from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Continued
from gradmarket.market.terms import Digest
from requester.blobs import Blobs
from requester.context import Context
from requester.feature import Feature
from requester.features.continuing import continued_jobs, extend_routes
from requester.moves.beginning import Beginning
from requester.store.work import RowReader


class Continuation(Beginning):
    def fill_posted(self, context: Context, body: Mapping[str, Any]) -> dict[str, Any]:
        return continued_jobs.fill_posted(context, body)

    def check_posted(self, context: Context, spec: JobSpec, token: str) -> None:
        continued_jobs.check_continued(context, spec, token)

    def explain_draft(self, reader: RowReader, spec: JobSpec, token: str) -> str:
        return continued_jobs.explain_draft(reader, spec, token)

    def find_start(self, reader: RowReader, spec: JobSpec) -> JobSpec | None:
        return continued_jobs.find_start(reader, spec)

    def check_state_fits(
        self, reader: RowReader, blobs: Blobs, start: Continued, layout: Layout, fresh: Arrays
    ) -> Digest:
        return continued_jobs.check_state_fits(reader, blobs, start, layout, fresh)


class ContinuingFeature(Feature):
    name = "continuing"
    routers = (extend_routes.router,)
    beginning = Continuation()
