"""Holds the receipts of this worker's answers to referees against the hearings that their market shows, and its log."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.features.disputes.receipts import KeptReceipt, ReceiptScope, group_receipts, judge_receipt
from gradmarket.market.features.disputes.transcript import count_answers
from gradmarket.market.features.log.job_log import SKEW_S, encode_answers, encode_attempt, encode_hearing
from gradmarket.market.features.log.merkle import is_included
from gradmarket.market.features.verify import Finding
from gradmarket.market.messages import LogHead
from gradmarket.market.rules.proof import Fault
from gradmarket.market.signing import digest_struct
from gradmarket.market.terms import TASK_COUNTED, Address, Hash
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.log_proofs import LeafKind
from worker.features.verify import proofs
from worker.features.verify.reported_heads import ReportedHead, fetch_leaf_proof
from worker.markets.worker_context import ENDED
from worker.money.account_store import JobAccount
from worker.protocol.client import MarketClient
from worker.protocol.records import ReplicaRecord

NOT_FOUND: Final = 404


@dataclass
class ReceiptCheck:
    """Holds the receipts against what is shown of their tasks, and then against a later head of the job's log: that of
    an ended job has all that was shown before.

    `unproven` describes, after a run, the receipts that could not be held against anything.
    """

    market: MarketClient
    account: JobAccount
    me: Address
    kept: Sequence[ReplicaRecord]
    receipts: Sequence[KeptReceipt]
    over: bool = False
    """Whether the job had ended before its evidence was read."""
    unproven: list[str] = field(default_factory=list)
    _shown: dict[Hash, PublishedEvidence | ServiceProblem | None] = field(default_factory=dict)

    def read_evidence(self) -> None:
        """Reads the evidence that is shown now of each receipt's task. Raises ServiceUnreachable."""
        self.over = self.market.job(self.account.job).state in ENDED
        self._shown = {offer: self._fetch_evidence(own[0]) for offer, own in group_receipts(self.receipts).items()}

    def run(self, scope: ReceiptScope, told: Sequence[ReportedHead]) -> Iterator[Finding]:
        """Yields the answers, hearings and tasks that the market hides. Raises ServiceUnreachable.

        `told`: the signed heads that the market told of the job's log; the newest one after `read_evidence`.
        """
        records = {digest_struct(self.account.domain, record.offer): record for record in self.kept}
        for offer, own in group_receipts(self.receipts).items():
            shown, record = self._shown[offer], records.get(offer)
            try:
                if isinstance(shown, ServiceProblem):
                    raise shown
                yield from self._judge(scope, own, shown, record)
                if shown is not None and shown.committed:
                    yield from self._find_unlogged(scope, told, own, shown, record)
            except ServiceProblem as problem:
                self.unproven.append(f"what became of its answers about task {own[0].task}: {problem}")

    def _fetch_evidence(self, kept: KeptReceipt) -> PublishedEvidence | ServiceProblem | None:
        """Returns the evidence that is shown of the receipt's task; None where the market has no such task."""
        try:
            return self.market.task(self.account.job, kept.task)
        except ServiceProblem as problem:
            return None if problem.status == NOT_FOUND else problem

    def _judge(
        self,
        scope: ReceiptScope,
        own: Sequence[KeptReceipt],
        shown: PublishedEvidence | None,
        record: ReplicaRecord | None,
    ) -> Iterator[Finding]:
        if shown is not None and not shown.committed and not self.over:
            self.unproven.append(f"its answers about task {own[0].task}, which the market does not show yet")
            return
        judged = [judge_receipt(scope, kept, shown) for kept in own]
        about = own[0].task if record is None else record.lease.replica
        yield from (Finding(Fault.HIDDEN_ANSWER, about, one.fault) for one in judged if one.fault)
        for note, count in Counter(one.note for one in judged if one.note).items():
            receipts = "1 receipt" if count == 1 else f"{count} receipts"
            self.unproven.append(f"its answers about task {own[0].task}, by {receipts} {note}")

    def _find_unlogged(
        self,
        scope: ReceiptScope,
        told: Sequence[ReportedHead],
        own: Sequence[KeptReceipt],
        shown: PublishedEvidence,
        record: ReplicaRecord | None,
    ) -> Iterator[Finding]:
        """Looks up each hearing's beginning, its number of answers, and the attempt, in the log that all see.

        A log that has the verdict has what preceded it, that of an ended job all that is over, and one that grew after
        a receipt the beginning of its hearing, but for a panel's, which waits for the end of its audit; what else is
        missing may still come.
        """
        heard = {(kept.sides, kept.run) for kept in own}
        head = told[-1].head.struct() if told else None
        judged = record is not None and self._is_verdict_logged(head, record)
        grew = False
        for kept in own:
            # fewer leaves when the market told a head after the receipt, by two clocks, than its newest head has; a
            # restore may have lost the hearing since, which was then held anew
            later = [one.head.size for one in told if one.at >= kept.at + SKEW_S]
            restored = any(restore.at + SKEW_S >= kept.at for restore in scope.restores)
            grew |= bool(later) and min(later) < told[-1].head.size and not restored
        about = own[0].task if record is None else record.lease.replica
        for number, hearing in enumerate(shown.hearings or ()):
            if (hearing.sides, hearing.run) not in heard:
                continue
            name, over = f"{own[0].task}/{number}", self.over and hearing.ruling is not None
            began, said = encode_hearing(own[0].offer, *hearing.sides, hearing.run), count_answers(hearing)
            due = judged or over or (grew and hearing.run is None)
            if not self._is_logged(head, LeafKind.HEARING, name, began, due):
                yield Finding(Fault.HIDDEN_ANSWER, about, f"hearing {number}: the log lacks its beginning")
            ended = encode_answers(own[0].offer, *hearing.sides, hearing.run, *said)
            due = over or (judged and hearing.ruling is not None)
            if not self._is_logged(head, LeafKind.ANSWERS, name, ended, due):
                why = f"hearing {number}: the log has another number of answers than it shows, or none"
                yield Finding(Fault.HIDDEN_ANSWER, about, why)
        if self.over and shown.state in TASK_COUNTED:
            one = shown.offer
            leaf = encode_attempt(one.round, one.task, one.attempt, len(shown.committed))
            if not self._is_logged(head, LeafKind.ATTEMPT, own[0].task, leaf, due=True):
                yield Finding(Fault.HIDDEN_ANSWER, about, "the log lacks its attempt, or the commitments that it shows")

    def _is_verdict_logged(self, head: LogHead | None, record: ReplicaRecord) -> bool:
        if head is None or record.verdict.signature is None:
            return False
        about = f"{record.lease.replica}/{record.verdict.outcome}"
        proven = fetch_leaf_proof(self.market, self.account.job, LeafKind.VERDICT, about, head.size)
        return proven is not None and proofs.is_verdict_logged(self.account.domain, self.me, record, head, proven)

    def _is_logged(self, head: LogHead | None, kind: LeafKind, about: str, leaf: bytes, due: bool) -> bool:
        """Returns whether the log has the leaf, or may still get it: that is noted."""
        proven = None if head is None else fetch_leaf_proof(self.market, self.account.job, kind, about, head.size)
        if head is not None and proven is not None:
            return is_included(leaf, proven.number, head.size, proven.path, head.root)
        if not due:
            self.unproven.append(f"the {kind.value} leaf of {about}: the log that it shows ends before")
        return not due
