"""The messages that requester, worker and others sign.

    Offer        requester   a task and its pay; its EIP-712 digest identifies the task on the wire
    Commitment   worker      a sealed payload root
    Wave         requester   the wave is closed: its secret, and the set of commitments it closed over
    Sketch       worker      the sketch of its answer under the wave's seed, and its determinism class
    Verdict      requester   the outcome of a replica; `accepted` is a promise to pay on upload
    Voucher      requester   cumulative pay, redeemable on-chain
    Release      worker      gives back the part of its reservation that it has not earned
    Payout       worker      the recipient of its earnings
    WatchMandate worker      lets a watcher contest accusations against it
    Ruling       validator   decides a contested accusation
    Consent      payout key  the worker is its operator's
    Withdrawal   payout key  it no longer is
    LogHead      requester   the job's log has this root at this size (features.log.job_log)
    DisputeRuling   referee  which sides lose

The members of a struct are in the order of its TYPE. `instance` (the chain's history) comes first in every one and is
taken from the domain. Money is in the job's units.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from gradmarket.market.terms import Address, Amount, Hash, Units


class Outcome(IntEnum):
    ACCEPTED = 1
    REJECTED = 2
    INCONCLUSIVE = 3
    LATE = 4
    DIVERGED = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """A task's offer. `anchor` is the end of the hash chain whose links open the waves one by one (rules.secrets)."""

    TYPE: ClassVar[str] = (
        "Offer(bytes32 instance,uint256 job,bytes32 spec,uint64 round,uint64 task,uint64 attempt,"
        "bytes32 parameters,bytes32 seed,uint64 price,bytes32 anchor,uint64 leaseSeconds,uint64 waveSeconds,"
        "uint64 uploadSeconds)"
    )
    job: int
    spec: Hash
    round: int
    task: int
    attempt: int
    parameters: Hash
    seed: Hash
    price: Units
    anchor: Hash
    lease_seconds: int
    wave_seconds: int
    upload_seconds: int


@dataclass(frozen=True, slots=True)
class Commitment:
    TYPE: ClassVar[str] = "Commitment(bytes32 instance,bytes32 offer,address worker,bytes32 sealed)"
    offer: Hash
    worker: Address
    sealed: Hash


@dataclass(frozen=True, slots=True)
class SignedWave:
    """A closed wave. `commitments` is the digest of the sorted set it closed over (rules.secrets.digest_of)."""

    TYPE: ClassVar[str] = "Wave(bytes32 instance,bytes32 offer,uint64 wave,bytes32 secret,bytes32 commitments)"
    offer: Hash
    wave: int
    secret: Hash
    commitments: Hash


@dataclass(frozen=True, slots=True)
class Sketch:
    """A worker's signed sketch. `numbers` is the digest of sketch and class (wire.poll.sketch_digest)."""

    TYPE: ClassVar[str] = "Sketch(bytes32 instance,bytes32 offer,address worker,bytes32 seed,bytes32 numbers)"
    offer: Hash
    worker: Address
    seed: Hash
    numbers: Hash


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a replica.

    `root` is the worker's own where it agreed, the quorum's where it was rejected, and zeros otherwise.
    """

    TYPE: ClassVar[str] = (
        "Verdict(bytes32 instance,bytes32 offer,address worker,uint64 outcome,bytes32 root,uint64 price)"
    )
    offer: Hash
    worker: Address
    outcome: int
    root: Hash
    price: Units


@dataclass(frozen=True, slots=True)
class Voucher:
    TYPE: ClassVar[str] = "Voucher(bytes32 instance,uint256 job,address worker,uint64 cumulative)"
    job: int
    worker: Address
    cumulative: Units


@dataclass(frozen=True, slots=True)
class Release:
    """Lowers a reservation to `reserved`; `nonce` is the contract's for this job and worker."""

    TYPE: ClassVar[str] = "Release(bytes32 instance,uint256 job,address worker,uint64 reserved,uint64 nonce)"
    job: int
    worker: Address
    reserved: Units
    nonce: int


@dataclass(frozen=True, slots=True)
class Payout:
    """Sends all that `worker` earns to `payout`; `nonce` is the contract's for this worker."""

    TYPE: ClassVar[str] = "Payout(bytes32 instance,address worker,address payout,uint64 nonce)"
    worker: Address
    payout: Address
    nonce: int


@dataclass(frozen=True, slots=True)
class WatchMandate:
    """`watcher` may contest every accusation against `worker`, and may do nothing else for it."""

    TYPE: ClassVar[str] = "Watch(bytes32 instance,address worker,address watcher)"
    worker: Address
    watcher: Address


@dataclass(frozen=True, slots=True)
class Ruling:
    """`accusation` is the contract's caseId, `amount` the accused one, in the token's smallest unit."""

    TYPE: ClassVar[str] = "Ruling(bytes32 instance,bytes32 accusation,uint128 amount,bool guilty)"
    accusation: Hash
    amount: Amount
    guilty: bool


@dataclass(frozen=True, slots=True)
class SignedConsent:
    """`payout` stands behind `worker`, which shares its record (rules.assignment)."""

    TYPE: ClassVar[str] = "Consent(bytes32 instance,address worker,address payout,uint64 nonce)"
    worker: Address
    payout: Address
    nonce: int


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """`payout` withdraws every Consent for `worker` whose nonce is at most this one."""

    TYPE: ClassVar[str] = "Withdrawal(bytes32 instance,address worker,address payout,uint64 nonce)"
    worker: Address
    payout: Address
    nonce: int


@dataclass(frozen=True, slots=True)
class LogHead:
    """The root over the first `size` leaves of the job's log: two heads that no proof connects are two histories."""

    TYPE: ClassVar[str] = "LogHead(bytes32 instance,uint256 job,uint64 size,bytes32 root)"
    job: int
    size: int
    root: Hash


@dataclass(frozen=True, slots=True)
class DisputeRuling:
    """A referee's verdict: bit 0 of `wrong` is the first side, bit 1 the second; `why` by its digest.

    `leaf` is the first operation in which the sides differ, 2^64 - 1 where none was found.
    """

    TYPE: ClassVar[str] = "DisputeRuling(bytes32 instance,bytes32 dispute,uint8 wrong,uint64 leaf,bytes32 why)"
    dispute: Hash
    wrong: int
    leaf: int
    why: Hash
