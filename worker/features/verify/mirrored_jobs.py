"""Compares a worker's records with an archive of their job, from a mirror, once its service is gone.

A mirror is not trusted. Its log counts where it leads to the heads that the batches carry on-chain: records missing
from such a log were left out by its requester. Any other mismatch is the mirror's fault, and shows nothing of the
requester.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradmarket.archives.archive_index import ArchiveRecords
from gradmarket.archives.mirrors import Mirror, MirrorSet, describe_trouble, name_trouble
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.features.disputes.receipts import (
    KeptReceipt,
    ReceiptScope,
    group_receipts,
    judge_receipt,
    receipt_struct,
)
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.features.verify import Finding, VerdictCase, of_rejection
from gradmarket.market.messages import LogHead, Outcome
from gradmarket.market.rules.proof import Fault, is_signed_by
from gradmarket.market.signing import digest_struct
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.poll import NO_ROOT, hash_of
from worker.features.verify import proofs
from worker.features.verify.proofs import ChainHistory
from worker.money.account_store import JobAccount
from worker.protocol.records import ReplicaRecord


@dataclass(frozen=True)
class MirroredJob:
    """`facts`: the proven and the unproven facts of the mirrors, in words; `findings`: the requester's faults;
    `unproven`: the facts that the mirror's own evidence does not show, in words."""

    facts: Sequence[str]
    findings: Sequence[Finding]
    unproven: Sequence[str] = ()


def check_by_mirrors(
    mirrors: Sequence[Mirror],
    account: JobAccount,
    me: Address,
    seen: ChainHistory,
    heads: Mapping[int, LogHead],
    kept: Sequence[ReplicaRecord],
    receipts: Sequence[KeptReceipt] = (),
) -> MirroredJob:
    """Asks the mirrors in their order until one has the job's log. Raises Refused where none has it."""
    whys, blobs = list[str](), MirrorSet(mirrors)
    for mirror in mirrors:
        try:
            _, records = MirrorSet([mirror]).read_record(account.job)
            records = ArchiveRecords(records.index, blobs.read_blob)
            # Raises Refused where the archive is none of this job: its terms or its log are not those on the chain
            publication = records.index.job.publication
            if publication is None or hash_of(publication.digest) != seen.spec:
                raise Refused("it has another publication than the one on the chain")
            for number, head in heads.items():
                if fault := next(job_log.find_head_faults(records.index.leaves, [head]), ""):
                    raise Refused(f"its log is not the one that batch {number} carries: {fault}")
        except MarketError as error:
            whys.append(name_trouble(mirror.place, error))
            continue
        # the accepted verdicts in the log of the batch of their pay, and the others
        places = {leaf: number for number, leaf in enumerate(records.index.leaves)}
        paid = [record for record in kept if record.paid and record.verdict.outcome == Outcome.ACCEPTED]
        logged, findings = 0, list[Finding]()
        for replica, batch in proofs.map_to_batches(seen, me, paid).items():
            if batch not in heads:
                continue
            verdict, offer = next(
                (one.verdict, digest_struct(account.domain, one.offer)) for one in paid if one.lease.replica == replica
            )
            data = job_log.encode_verdict(offer, me, verdict.outcome or 0, verdict.signature or b"")
            if places.get(Hash(hash_leaf(data)), heads[batch].size) < heads[batch].size:
                logged += 1
            else:
                root = f"root 0x{heads[batch].root.hex()} over {heads[batch].size} leaves"
                findings.append(Finding(Fault.NOT_LOGGED, replica, f"batch {batch}, {root}"))
        findings += _find_unlogged_hearings(records, account, me, seen, heads, kept, receipts)
        rejected = [record for record in kept if record.rejected]
        unproven = [text for record in rejected if (text := _describe_unproven(records, account, me, seen, record))]
        facts = [
            *whys,
            f"{mirror.place} has the log that {len(heads)} batches carry, with {logged} of its verdicts, and proves "
            f"{len(rejected) - len(unproven)} rejections",
            *unproven,
        ]
        return MirroredJob(facts, findings, [*_list_unshown_answers(records, account, seen, receipts)])
    raise Refused("; ".join(whys), "name another mirror (--mirror)")


def _find_unlogged_hearings(
    records: ArchiveRecords,
    account: JobAccount,
    me: Address,
    seen: ChainHistory,
    heads: Mapping[int, LogHead],
    kept: Sequence[ReplicaRecord],
    receipts: Sequence[KeptReceipt],
) -> list[Finding]:
    """Returns the hearings whose beginning is not in the log of the batch that pays for their task: receipts prove that
    they were before."""
    places = {leaf: number for number, leaf in enumerate(records.index.leaves)}
    batches = proofs.map_to_batches(seen, me, [record for record in kept if record.paid])
    paid = {digest_struct(account.domain, record.offer): record.lease.replica for record in kept if record.paid}
    missing = dict[Hash, Finding]()
    for receipt in receipts:
        replica = paid.get(receipt.offer)
        head = None if replica is None else heads.get(batches.get(replica, -1))
        signed = is_signed_by(account.domain, receipt_struct(receipt), receipt.signature, seen.signer)
        if head is None or replica is None or receipt.run is not None or not signed:
            continue
        leaf = Hash(hash_leaf(job_log.encode_hearing(receipt.offer, *receipt.sides, receipt.run)))
        if places.get(leaf, head.size) >= head.size:
            why = f"the log of {head.size} leaves lacks the beginning of its hearing; the receipt of question "
            detail = f"{why}{receipt.number} is signed 0x{receipt.signature.hex()}"
            missing.setdefault(leaf, Finding(Fault.HIDDEN_ANSWER, replica, detail))
    return [*missing.values()]


def _list_unshown_answers(
    records: ArchiveRecords, account: JobAccount, seen: ChainHistory, receipts: Sequence[KeptReceipt]
) -> Iterator[str]:
    """Yields the answers that the archive does not show, of which it may be a mirror's fault alone."""
    scope = ReceiptScope(account.domain, seen.signer, account.chain_job)
    for own in group_receipts(receipts).values():
        try:
            shown = records.task(account.job, own[0].task)
        except (MarketError, ValueError):
            yield f"its answers to a referee about task {own[0].task}: the mirror has no evidence of it"
            continue
        for receipt in own:
            if why := "".join(judge_receipt(scope, receipt, shown)):
                yield f"an answer to a referee about task {receipt.task}, by the mirror's evidence: {why}"


def _describe_unproven(
    records: ArchiveRecords, account: JobAccount, me: Address, seen: ChainHistory, record: ReplicaRecord
) -> str:
    """Returns why the archive's evidence does not prove a rejection; empty where it does."""
    publication, replica = records.index.job.publication, record.lease.replica
    sealed = record.prepared.sealed if record.prepared else NO_ROOT
    try:
        evidence = records.task(account.job, record.lease.task)
    except (MarketError, ValueError) as error:
        why = describe_trouble(error) if isinstance(error, MarketError) else "its evidence cannot be read"
        return f"the rejection of {replica} is not proven: {why}"
    if publication is None or not evidence.committed:
        return f"the rejection of {replica} is not proven: its evidence is not shown"
    case = VerdictCase(account.domain, seen.signer, publication.checks, evidence)
    faults = of_rejection(case, record.verdict, digest_struct(account.domain, record.offer), me, sealed)
    why = next(iter(map(str, faults)), "")
    return f"the rejection of {replica} is not proven by the mirror's evidence: {why}" if why else ""
