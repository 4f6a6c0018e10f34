"""What a job begins from: by default the parameters of its own model, with an optimizer that remembers nothing."""

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
    """What a feature knows of jobs that go on from another's end; admission refuses them where none does."""

    def fill_posted(self, context: Context, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a posted job with what it leaves open of the job that it continues; others as they came."""
        return dict(body)

    def check_posted(self, context: Context, spec: JobSpec, token: str) -> None:
        """Raises JobRefused for a job that may not go on from the one that it names."""

    def explain_draft(self, reader: RowReader, spec: JobSpec, token: str) -> str:
        """Returns the reason of a job that is a draft. Raises JobRefused where too many of the token's wait."""
        return "being published"

    def find_start(self, reader: RowReader, spec: JobSpec) -> JobSpec | None:
        """Returns the job with what its first round starts from; None while the earlier job goes on."""
        return spec

    def check_state_fits(
        self, reader: RowReader, blobs: Blobs, start: Continued, layout: Layout, fresh: Arrays
    ) -> Digest:
        """Returns the optimizer's memory that the job starts with. Raises JobRefused for another model or optimizer.

        `fresh`: the memory with which such a job would begin anew.
        """
        raise JobRefused("continue_from", "this service is built without jobs that continue others")
