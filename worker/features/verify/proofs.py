"""Verifies the worker's own records; each fault is a requester's lie, named by its gain.

Pure. The job's signer and specification, the reservation and the batches come from the worker's own node; offers,
waves, verdicts and vouchers come from its own records. A market's publications are only compared with these.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.event_types import VestBurn
from contracts.ledger import AccountOnChain
from contracts.packing import PackedGroup
from contracts.proofs import build_proof, is_record_proven
from gradmarket.market.features.log.job_log import LeafProof, encode_offer, encode_verdict
from gradmarket.market.features.log.merkle import is_included
from gradmarket.market.features.verify import Finding
from gradmarket.market.messages import LogHead
from gradmarket.market.rules import proof
from gradmarket.market.rules.proof import Fault, OfferScope
from gradmarket.market.signing import Domain, digest_struct
from gradmarket.market.stakes import compute_accusation_event
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId, Units
from gradmarket.market.wire.evidence import PublishedAudit
from gradmarket.market.wire.log_proofs import LeafKind
from gradmarket.market.wire.poll import NO_ROOT, SignedVerdict, hash_of
from worker.money.account_store import JobAccount
from worker.protocol.records import ReplicaRecord

SKIPPED_S: Final = 60.0
"""Seconds by which a gradient must precede another one of a batch to belong into that batch or an earlier one."""


@dataclass(frozen=True, slots=True)
class ChainHistory:
    """One job's history from the worker's own node; `batches` holds, in full, those that credit this worker."""

    signer: Address
    spec: Hash
    account: AccountOnChain
    batches: dict[int, tuple[Hash, tuple[PackedGroup, ...]]]
    burns: tuple[VestBurn, ...] = ()

    @property
    def burnt(self) -> Units:
        """Returns the part of the account's `withdrawn` that rulings have burnt."""
        return Units(sum(burn.units for burn in self.burns))


def of_record(domain: Domain, seen: ChainHistory, me: Address, record: ReplicaRecord) -> list[Finding]:
    """Returns the faults in one replica's evidence."""
    scope, replica = OfferScope(domain, seen.signer, record.offer), record.lease.replica
    faults = [*proof.of_offer(scope, record.lease.signature, seen.spec)]
    # the messages after the worker's own answer: opening, wave and verdict
    if record.prepared is not None:
        if not is_commitment_opened(scope, me, record):
            faults.append(Fault.BROKEN_COMMITMENT)
        if record.wave is not None:
            faults += proof.of_opening(scope, record.wave, me, record.prepared.sealed)
    unjust = proof.of_answer(record.offer, record.verdict, record.root or NO_ROOT, revealed=True)
    if fault := proof.of_verdict(scope, record.verdict, me) or unjust:
        faults.append(fault)
    findings = [Finding(fault, replica) for fault in faults]
    if record.unkept:
        left = "its bytes had left" if record.sent or record.uploaded else "no byte had left"
        ended = f"{record.verdict.state}{f', {record.verdict.reason}' if record.verdict.reason else ''}"
        findings.append(Finding(Fault.BROKEN_PROMISE, replica, f"{ended}; {left}; {describe_promise(record.promise)}"))
    return findings


def is_commitment_opened(scope: OfferScope, me: Address, record: ReplicaRecord) -> bool:
    """Returns whether the stored salt and root open the commitment."""
    prepared = record.prepared
    return prepared is not None and scope.is_seal_opened(me, prepared.sealed, prepared.salt, prepared.root)


def describe_promise(promise: SignedVerdict | None) -> str:
    """Describes the signed promise, which its worker can show to anybody."""
    if promise is None or promise.signature is None:
        return "the promise itself was not kept"
    return f"promised: {promise.price} units for {promise.root} under 0x{promise.signature.hex()}"


def of_money(
    domain: Domain, seen: ChainHistory, me: Address, account: JobAccount, paid: Sequence[ReplicaRecord]
) -> Iterator[Finding]:
    """Compares voucher and reservation with the sum of the accepted verdicts, `paid`."""
    promised = sum(record.lease.offer.price for record in paid)
    voucher = account.voucher(me)
    if account.signature is not None and not proof.is_signed_by(domain, voucher, account.signature, seen.signer):
        yield Finding(Fault.UNSIGNED_VOUCHER, detail=f"for {account.vouchered} units")
    covered = max(account.vouchered, seen.account.settled)
    if covered < promised - account.may_wait * account.price:
        yield Finding(Fault.SHORT_VOUCHER, detail=f"{covered} of {promised} units")
    if seen.account.reserved < promised:
        yield Finding(Fault.NOT_RESERVED, detail=f"{seen.account.reserved} of {promised} units")


def describe_burn_fault(
    domain: Domain, burn: VestBurn, kept: Sequence[ReplicaRecord], audits: Sequence[PublishedAudit]
) -> str:
    """Returns how the published audits fail to show an own answer that the burn is about; empty if one shows it.

    The event that the contract holds covers offer, commitment and answer, of which this worker has records, and the
    audit's root.
    """
    found = [Digest(one.root) for one in audits if one.root and any(it.case == burn.case for it in one.accusations)]
    if not found:
        return "no audit with a result is published of it"
    result = hash_of(found[0])
    wrong = (
        compute_accusation_event(digest_struct(domain, record.offer), record.prepared.sealed, record.root, result)
        for record in kept
        if record.prepared is not None and record.root is not None and record.root != result
    )
    return "" if burn.event in wrong else "it is about no answer in this worker's records"


def of_batches(
    seen: ChainHistory, me: Address, account: JobAccount, paid: Sequence[ReplicaRecord]
) -> Iterator[Finding]:
    """Finds each accepted gradient in a batch and proves it under the root that the contract stores.

    A gradient that no voucher covers may wait for a test, and is in no batch meanwhile.
    """
    batch_of = map_to_batches(seen, me, paid)
    for record in paid:
        price, root = record.lease.offer.price, record.root or Hash(bytes(32))
        if record.lease.replica in batch_of:
            stored, groups = seen.batches[batch_of[record.lease.replica]]
            if not is_record_proven(stored, me, price, root, build_proof(groups, me, price, root)):
                yield Finding(Fault.FALSE_ROOT, record.lease.replica, f"batch {batch_of[record.lease.replica]}")
    settled = [record for record in paid if record.lease.replica in batch_of]
    newest = max(settled, key=lambda record: record.at, default=None)
    if newest is None:
        return
    left = [record for record in paid if record.lease.replica not in batch_of]
    passed = [record for record in left if record.at + SKIPPED_S < newest.at]
    for record in passed[min(account.may_wait, account.unpaid) :]:
        later = f"{newest.lease.replica} is in batch {batch_of[newest.lease.replica]}"
        yield Finding(Fault.SKIPPED, record.lease.replica, later)


def map_to_batches(seen: ChainHistory, me: Address, paid: Sequence[ReplicaRecord]) -> dict[ReplicaId, int]:
    """Returns the batch of each accepted gradient that is in one."""
    # by price and digest, the batches that credit this worker for it, one entry per credit
    places: defaultdict[tuple[Units, Hash], list[int]] = defaultdict(list)
    for batch, (_, groups) in sorted(seen.batches.items()):
        for group in groups:
            for digest in group.digests if group.worker == me else ():
                places[group.price, digest].append(batch)
    batch_of = dict[ReplicaId, int]()
    for record in paid:
        held = places[record.lease.offer.price, record.root or Hash(bytes(32))]
        if held:
            batch_of[record.lease.replica] = held.pop(0)
    return batch_of


def is_verdict_logged(domain: Domain, me: Address, record: ReplicaRecord, head: LogHead, shown: LeafProof) -> bool:
    """Returns whether the market's proof shows the verdict, as this worker received it, to be in the head's log."""
    _, _, leaf = encode_last_signed(domain, me, record)
    return is_included(leaf, shown.number, head.size, shown.path, head.root)


def encode_last_signed(domain: Domain, me: Address, record: ReplicaRecord) -> tuple[LeafKind, str, bytes]:
    """Returns the kind, subject and bytes of a leaf: the signed verdict, else the attempt's offer."""
    verdict, offer = record.verdict, digest_struct(domain, record.offer)
    if verdict.signature is None:
        return LeafKind.OFFER, record.lease.task, encode_offer(offer, record.lease.signature)
    about = f"{record.lease.replica}/{verdict.outcome}"
    return LeafKind.VERDICT, about, encode_verdict(offer, me, verdict.outcome or 0, verdict.signature)
