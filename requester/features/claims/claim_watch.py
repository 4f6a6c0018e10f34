"""Hashes the merged payloads of a round under the keys of its claims, while they are there."""

from contextlib import ExitStack
from typing import Final

from gradmarket.market.features import claims as claim_messages
from gradmarket.market.terms import Digest, Hash
from requester.context import Context
from requester.feature import MergeWatch
from requester.features.claims import claim_rows
from requester.moves.replay import MergeInputs
from requester.store.tables import Job, Round
from requester.store.work import Work

NONE: Final[list[Digest]] = []


class ClaimWatch(MergeWatch):
    """Of one merge, whose claims have these keys."""

    def __init__(self, keys: list[Hash]) -> None:
        self._keys = keys
        self._withheld = NONE

    def measure(self, context: Context, inputs: MergeInputs) -> None:
        with ExitStack() as stack:
            payloads = [stack.enter_context(context.blobs.mapped(blob)) for blob, _ in inputs.answers]
            self._withheld = [claim_messages.digest_answers(key, payloads) for key in self._keys]

    def close(self, work: Work, job: Job, row: Round, now: float) -> None:
        claim_rows.store_withheld(work, job, row.number, self._withheld)
