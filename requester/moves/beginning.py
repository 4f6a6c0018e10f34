"""The start of a job: by default the parameters of its own model, with an optimizer that remembers nothing."""

from collections.abc import Mapping
from typing import Any

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Continued
from gradmarket.market.terms import Digest
from requester.blobs import Blobs
from requester.context import Context
from requester.store.work import RowReader


class Beginning:
    """The feature that continues jobs from another's end; admission refuses these without one."""

    def fill_posted(self, context: Context, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a posted job, its open fields filled from the job that it continues; other jobs unchanged."""
        return dict(body)

    def check_posted(self, context: Context, spec: JobSpec, token: str) -> None:
        """Raises JobRefused for a job that may not continue the job that it names."""

    def explain_draft(self, reader: RowReader, spec: JobSpec, token: str) -> str:
        """Returns the reason of a job that is a draft. Raises JobRefused where too many drafts of the token wait."""
        return "being published"

    def find_start(self, reader: RowReader, spec: JobSpec) -> JobSpec | None:
        """Returns the job with the state that its first round starts from; None while the earlier job goes on."""
        return spec

    def check_state_fits(
        self, reader: RowReader, blobs: Blobs, start: Continued, layout: Layout, fresh: Arrays
    ) -> Digest:
        """Returns the optimizer's memory that the job starts with. Raises JobRefused for another model or optimizer.

        `fresh`: the memory with which such a job would begin anew.
        """
        raise JobRefused("continue_from", "this service is built without jobs that continue others")
