"""Claims: auditors from outside prove that they computed a round, by a digest that was withheld until they sent it.

The merged payloads of a round are hashed under the keys of its claims, while they are there.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from gradmarket.market.features import claims as claim_messages
from gradmarket.market.terms import Digest, Hash
from requester.context import Context
from requester.feature import Feature, MergeWatch
from requester.features.claims import claim_routes, claim_rows
from requester.moves.replay import MergeInputs
from requester.store import jobs
from requester.store.tables import Job, Round, Task
from requester.store.work import RowReader, Work

NONE: Final[list[Digest]] = []


class ClaimWatch(MergeWatch):
    """Watches one merge, whose claims have these keys."""

    def __init__(self, keys: list[Hash]) -> None:
        self._keys = keys
        self._withheld = NONE

    def measure(self, context: Context, inputs: MergeInputs) -> None:
        with ExitStack() as stack:
            payloads = [stack.enter_context(context.blobs.mapped(blob)) for blob, _ in inputs.answers]
            self._withheld = [claim_messages.digest_answers(key, payloads) for key in self._keys]

    def close(self, work: Work, job: Job, row: Round, now: float) -> None:
        claim_rows.store_withheld(work, job, row.number, self._withheld)


class ClaimsFeature(Feature):
    name = "claims"
    routers = (claim_routes.router,)

    def watch_merge(self, reader: RowReader, job: Job, used: Sequence[Task]) -> MergeWatch | None:
        audit = jobs.load_spec(job).audit
        if audit is None or not audit.claims or not used:
            return None
        number = used[0].merge_round
        return ClaimWatch([claim_messages.derive_claim_key(job.secret, number, one) for one in range(audit.claims)])

    def rounds_undone(self, context: Context, work: Work, job: Job, first: int, now: float) -> None:
        claim_rows.delete_claims(work, job.id, first)
