"""Verifies the worker's own records; each fault is a requester's lie, named by what it would gain.

Pure. The job's signer and specification, the reservation and the batches come from the worker's own node; offers,
waves, verdicts and vouchers come from its own records. What a market publishes is only compared with these.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gradmarket.contracts.ledger import AccountOnChain
from gradmarket.contracts.packing import PackedGroup
from gradmarket.contracts.proofs import prove, proves
from gradmarket.market.rules.secrets import seal
from gradmarket.market.signing import Domain, digest
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId, Units
from gradmarket.market.wire import SignedVerdict, hash_of
from gradmarket.worker.money.account_store import JobAccount
from gradmarket.worker.protocol import protocol_checks
from gradmarket.worker.protocol.records import ReplicaRecord

SKIPPED_S: Final = 60.0
"""Seconds.

A gradient received that much earlier than another one in a batch should be in that batch or an earlier one.
"""


class EvidenceFault(StrEnum):
    FORGED_OFFER = "the offer is not signed by the signer of the chain's job"
    OTHER_SPEC = "the offer names another specification than the chain's job"
    BROKEN_WAVE = "the wave that was opened does not hold this commitment, or not the offer's secret"
    BROKEN_COMMITMENT = "salt and root that were kept do not lead to the commitment"
    FORGED_VERDICT = "the verdict is not signed by the signer of the chain's job"
    CONTRADICTION = "the verdict's state and its signed outcome disagree"
    OTHER_ROOT = "it was paid for a payload that this worker did not make"
    BROKEN_PROMISE = "pay was promised under signature, and nothing paid"
    FORGED_VOUCHER = "the voucher is not signed by a signer of the chain's job"
    SHORT_VOUCHER = "the newest voucher says less than the accepted verdicts promise"
    NOT_RESERVED = "the reservation on-chain does not cover what the accepted verdicts promise"
    SKIPPED = "a batch settled what was accepted later, and no batch holds this gradient"
    FALSE_ROOT = "the contract's root of a batch does not prove a gradient that its events name"
    MISSING_GRADIENT = "the market's payments lack a gradient that it accepted"
    OTHER_VERDICT = "the market publishes another verdict than the one that it told"
    UNPROVEN = "the market's evidence of a rejection does not show a quorum for another answer"


@dataclass(frozen=True, slots=True)
class EvidenceFinding:
    """`replica` is None for a fault that concerns the whole job."""

    fault: EvidenceFault
    job: str
    replica: ReplicaId | None
    detail: str


@dataclass(frozen=True, slots=True)
class ChainHistory:
    """One job's history from the worker's own node; `batches` holds, in full, those that credit this worker."""

    signer: Address
    spec: Hash
    account: AccountOnChain
    batches: dict[int, tuple[Hash, tuple[PackedGroup, ...]]]


def of_record(
    domain: Domain, seen: ChainHistory, me: Address, record: ReplicaRecord
) -> Iterator[tuple[EvidenceFault, str]]:
    """Yields the faults in one replica's evidence."""
    offer, prepared = record.offer, record.prepared
    if not protocol_checks.signed(domain, offer, record.lease.signature, seen.signer):
        yield EvidenceFault.FORGED_OFFER, f"task {record.lease.task}"
    if offer.spec != seen.spec:
        yield EvidenceFault.OTHER_SPEC, f"{offer.spec.hex()} instead of {seen.spec.hex()}"
    if prepared is not None:
        if not opens(domain, me, record):
            yield EvidenceFault.BROKEN_COMMITMENT, ""
        if record.wave is not None:
            breach = protocol_checks.wave(domain, offer, record.wave, (me, Hash(prepared.sealed)), seen.signer)
            if breach is not None:
                yield EvidenceFault.BROKEN_WAVE, breach.value
    yield from _of_verdict(domain, seen, me, record)


def opens(domain: Domain, me: Address, record: ReplicaRecord) -> bool:
    """Returns whether the stored salt and root open the commitment."""
    prepared = record.prepared
    if prepared is None:
        return False
    offer, root = digest(domain, record.offer), hash_of(Digest(prepared.root))
    return seal(offer, me, Hash(prepared.salt), root) == prepared.sealed


def _of_verdict(
    domain: Domain, seen: ChainHistory, me: Address, record: ReplicaRecord
) -> Iterator[tuple[EvidenceFault, str]]:
    signed_verdict = record.verdict
    if (record.paid or record.rejected) and signed_verdict.signature is None:
        yield EvidenceFault.FORGED_VERDICT, "it has no signature"
    elif signed_verdict.signature is not None:
        struct = signed_verdict.struct(digest(domain, record.offer), me)
        if not protocol_checks.signed(domain, struct, signed_verdict.signature, seen.signer):
            yield EvidenceFault.FORGED_VERDICT, signed_verdict.state
        elif protocol_checks.verdict(domain, record.offer, signed_verdict, me, seen.signer) is not None:
            yield EvidenceFault.CONTRADICTION, f"{signed_verdict.state}, outcome {signed_verdict.outcome}"
    if record.paid and (signed_verdict.root is None or hash_of(Digest(signed_verdict.root)) != record.root):
        yield EvidenceFault.OTHER_ROOT, str(signed_verdict.root)
    if record.unkept:
        left = "its bytes had left" if record.sent or record.uploaded else "no byte had left"
        ended = f"{signed_verdict.state}{f', {signed_verdict.reason}' if signed_verdict.reason else ''}"
        yield EvidenceFault.BROKEN_PROMISE, f"{ended}; {left}; {promised(record.promise)}"


def promised(promise: SignedVerdict | None) -> str:
    """Describes the signed promise, which its worker can show to anybody."""
    if promise is None or promise.signature is None:
        return "the promise itself was not kept"
    return f"promised: {promise.price} units for {promise.root} under 0x{promise.signature.hex()}"


def of_money(
    domain: Domain, seen: ChainHistory, me: Address, account: JobAccount, paid: Sequence[ReplicaRecord]
) -> Iterator[EvidenceFinding]:
    """Compares voucher and reservation with the sum of the accepted verdicts, `paid`."""
    promised = sum(record.lease.offer.price for record in paid)
    voucher = account.voucher(me)
    if account.signature is not None and not protocol_checks.signed(domain, voucher, account.signature, seen.signer):
        yield EvidenceFinding(EvidenceFault.FORGED_VOUCHER, account.job, None, f"for {account.vouchered} units")
    covered = max(account.vouchered, seen.account.settled)
    if covered < promised:
        yield EvidenceFinding(EvidenceFault.SHORT_VOUCHER, account.job, None, f"{covered} of {promised} units")
    if seen.account.reserved < promised:
        yield EvidenceFinding(
            EvidenceFault.NOT_RESERVED, account.job, None, f"{seen.account.reserved} of {promised} units"
        )


def of_batches(seen: ChainHistory, me: Address, job: str, paid: Sequence[ReplicaRecord]) -> Iterator[EvidenceFinding]:
    """Finds each accepted gradient in a batch and proves it under the root that the contract stores."""
    places = _places(seen, me)
    batch_of: dict[ReplicaId, int] = {}
    for record in paid:
        price, root = record.lease.offer.price, record.root or Hash(bytes(32))
        held = places[price, root]
        if held:
            batch_of[record.lease.replica] = held.pop(0)
            stored, groups = seen.batches[batch_of[record.lease.replica]]
            if not proves(stored, me, price, root, prove(groups, me, price, root)):
                yield EvidenceFinding(
                    EvidenceFault.FALSE_ROOT, job, record.lease.replica, f"batch {batch_of[record.lease.replica]}"
                )
    settled = [record for record in paid if record.lease.replica in batch_of]
    newest = max(settled, key=lambda record: record.at, default=None)
    for record in paid:
        if newest and record.lease.replica not in batch_of and record.at + SKIPPED_S < newest.at:
            later = f"{newest.lease.replica} is in batch {batch_of[newest.lease.replica]}"
            yield EvidenceFinding(EvidenceFault.SKIPPED, job, record.lease.replica, later)


def _places(seen: ChainHistory, me: Address) -> defaultdict[tuple[Units, Hash], list[int]]:
    """Maps (price, digest) to the batches that credit this worker for it, one entry per credit."""
    places: defaultdict[tuple[Units, Hash], list[int]] = defaultdict(list)
    for batch, (_, groups) in sorted(seen.batches.items()):
        for group in groups:
            for digest_ in group.digests if group.worker == me else ():
                places[group.price, digest_].append(batch)
    return places
