"""Markets that promise pay under signature, take the payload, and do not pay: one for each way of saying so."""

from dataclasses import dataclass, field
from typing import Final

from fastapi import HTTPException

from gradmarket.market.messages import Outcome
from gradmarket.market.terms import Digest, ReplicaState, blob_digest
from gradmarket.market.wire.poll import PollAnswer, PollRequest, SignedVerdict
from tests.worker.fake_market import FakeMarket, Row, Taken

INVENTED: Final = Digest("blake3:" + "11" * 32)
"""A root that nobody has."""
ENDINGS: Final = tuple(
    ReplicaState(name)
    for name in (
        "withheld", "inconclusive", "too_late", "not_needed", "expired", "abandoned", "error", "rejected",
    )
)  # fmt: skip
REPLIES: Final = (404, 409, 410, 413, 500)


@dataclass
class Breaker(FakeMarket):
    """Ends every promised replica by `end` once its payload is here; `reply` is its answer to the upload."""

    end: ReplicaState | None = ReplicaState.INCONCLUSIVE
    reply: int | None = None
    asks: bool = True
    """Whether it asks for the payload at all: an unasked worker computed for nothing."""
    roots: set[str] = field(default_factory=set)
    """Of the payloads that came."""

    def uploaded(self, row: Row) -> None:
        if self.end is not None:
            row.state = self.end

    def take(self, replica: str, data: bytes) -> Taken:
        self.roots.add(blob_digest(data))
        if self.reply is None:
            return super().take(replica, data)  # type: ignore[arg-type]
        row = next(row for row in self.rows.values() if row.id == replica)
        row.uploads += 1
        self.uploaded(row)
        raise HTTPException(self.reply, "no")

    def verdict(self, row: Row) -> SignedVerdict:
        if row.state is ReplicaState.AGREE or row.state is ReplicaState.PAYABLE:
            return super().verdict(row)
        if row.state is ReplicaState.REJECTED:
            return self.signed_verdict(row, row.state, Outcome.REJECTED, INVENTED, 0)
        if row.state is ReplicaState.INCONCLUSIVE:
            return self.signed_verdict(row, row.state, Outcome.INCONCLUSIVE, None, 0)
        return SignedVerdict(
            replica=row.id, state=row.state, outcome=None, root=None, price=0, reason="", signature=None
        )

    def answer(self, worker: str, said: PollRequest) -> PollAnswer:  # type: ignore[override]
        told = super().answer(worker, said)  # type: ignore[arg-type]
        if self.asks:
            return told
        for row in self.rows.values():
            promised = said.known.get(row.id) is ReplicaState.AGREE
            if promised and row.state is ReplicaState.AGREE and self.end is not None:
                row.state = self.end
        return told.model_copy(update={"uploads": ()})
