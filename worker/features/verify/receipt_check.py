"""Holds the receipts of this worker's answers to referees against the hearings that their market shows, and its log."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.features.disputes.receipts import KeptReceipt, ReceiptScope, group_receipts, judge_receipt
from gradmarket.market.features.disputes.transcript import count_answers
from gradmarket.market.features.log.job_log import encode_answers, encode_hearing
from gradmarket.market.features.log.merkle import is_included
from gradmarket.market.features.verify import Finding
from gradmarket.market.messages import LogHead
from gradmarket.market.rules.proof import Fault
from gradmarket.market.signing import digest_struct
from gradmarket.market.terms import Address
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.log_proofs import LeafKind
from worker.features.verify import proofs
from worker.features.verify.reported_heads import fetch_leaf_proof
from worker.money.account_store import JobAccount
from worker.protocol.client import MarketClient
from worker.protocol.records import ReplicaRecord

NOT_FOUND: Final = 404


@dataclass
class ReceiptCheck:
    """`head`: the newest that the market told of the job's log, which it signed; `over`: whether the job has ended.

    `unproven` describes, after a run, the receipts that could not be held against anything.
    """

    market: MarketClient
    account: JobAccount
    me: Address
    scope: ReceiptScope
    head: LogHead | None
    over: bool
    kept: Sequence[ReplicaRecord]
    unproven: list[str] = field(default_factory=list)

    def run(self, receipts: Sequence[KeptReceipt]) -> Iterator[Finding]:
        """Yields the answers, hearings and tasks that the market hides. Raises ServiceUnreachable."""
        records = {digest_struct(self.account.domain, record.offer): record for record in self.kept}
        for offer, own in group_receipts(receipts).items():
            record = records.get(offer)
            try:
                shown = self._fetch_evidence(own[0])
                yield from self._judge(own, shown, record)
                if shown is not None and shown.committed:
                    yield from self._find_unlogged(own, shown, record)
            except ServiceProblem as problem:
                self.unproven.append(f"what became of its answers about task {own[0].task}: {problem}")

    def _fetch_evidence(self, kept: KeptReceipt) -> PublishedEvidence | None:
        """Returns what is shown of the receipt's task; None where the market has no such task."""
        try:
            return self.market.task(self.account.job, kept.task)
        except ServiceProblem as problem:
            if problem.status != NOT_FOUND:
                raise
            return None

    def _judge(
        self, own: Sequence[KeptReceipt], shown: PublishedEvidence | None, record: ReplicaRecord | None
    ) -> Iterator[Finding]:
        if shown is not None and not shown.committed and not self.over:
            self.unproven.append(f"its answers about task {own[0].task}, which the market does not show yet")
            return
        judged = [judge_receipt(self.scope, kept, shown) for kept in own]
        about = own[0].task if record is None else record.lease.replica
        yield from (Finding(Fault.HIDDEN_ANSWER, about, one.fault) for one in judged if one.fault)
        for note, count in Counter(one.note for one in judged if one.note).items():
            receipts = "1 receipt" if count == 1 else f"{count} receipts"
            self.unproven.append(f"its answers about task {own[0].task}, by {receipts} {note}")

    def _find_unlogged(
        self, own: Sequence[KeptReceipt], shown: PublishedEvidence, record: ReplicaRecord | None
    ) -> Iterator[Finding]:
        """Looks up the beginning of each hearing, and the number of its answers, in the log, which is the same for all.

        Both precede the verdict: a log that has this has those.
        """
        heard = {(kept.sides, kept.run) for kept in own}
        after = record is not None and self._is_verdict_logged(record)
        about = own[0].task if record is None else record.lease.replica
        for number, hearing in enumerate(shown.hearings or ()):
            if (hearing.sides, hearing.run) not in heard:
                continue
            name = f"{own[0].task}/{number}"
            began, said = encode_hearing(own[0].offer, *hearing.sides, hearing.run), count_answers(hearing)
            if not self._is_logged(LeafKind.HEARING, name, began, due=after):
                yield Finding(Fault.HIDDEN_ANSWER, about, f"hearing {number}: the log lacks its beginning")
            ended = encode_answers(own[0].offer, *hearing.sides, hearing.run, *said)
            if not self._is_logged(LeafKind.ANSWERS, name, ended, due=after and hearing.ruling is not None):
                why = f"hearing {number}: the log has another number of answers than it shows, or none"
                yield Finding(Fault.HIDDEN_ANSWER, about, why)

    def _is_verdict_logged(self, record: ReplicaRecord) -> bool:
        if self.head is None or record.verdict.signature is None:
            return False
        about = f"{record.lease.replica}/{record.verdict.outcome}"
        proven = fetch_leaf_proof(self.market, self.account.job, LeafKind.VERDICT, about, self.head.size)
        return proven is not None and proofs.is_verdict_logged(self.account.domain, self.me, record, self.head, proven)

    def _is_logged(self, kind: LeafKind, about: str, leaf: bytes, due: bool) -> bool:
        """Returns whether the log has the leaf, or may still get it: that is noted."""
        head = self.head
        proven = None if head is None else fetch_leaf_proof(self.market, self.account.job, kind, about, head.size)
        if head is not None and proven is not None:
            return is_included(leaf, proven.number, head.size, proven.path, head.root)
        if not due:
            self.unproven.append(f"the {kind.value} leaf of hearing {about}: the log that it shows ends before")
        return not due
