"""The contract's events, by the names of its ABI. Amounts are in the job's units."""

from dataclasses import dataclass
from typing import Final

from gradmarket.market.terms import Address, Amount, Hash, Units

NOTHING: Final = Units(0)
NOBODY: Final = Hash(bytes(32))


@dataclass(frozen=True, slots=True)
class JobOpened:
    """All terms that were fixed when the job opened, with the `contract` and the `block` of the event."""

    job: int
    requester: Address
    deposited: Units
    spec_digest: Hash
    expiry: int
    claim_until: int
    unit: Amount
    signer: Address
    slash_window: int
    endpoint: str
    contract: Address
    block: int
    vest: Units = NOTHING
    vest_window: int = 0
    vest_quorum: Hash = NOBODY


@dataclass(frozen=True, slots=True)
class Reserved:
    """An increase of a worker's reservation by `added`; `reserved` is the new total."""

    job: int
    worker: Address
    added: Units
    reserved: Units


@dataclass(frozen=True, slots=True)
class Amounted:
    """A deposit, a refund or a payment of `amount`; `worker` is set for payments only."""

    job: int
    amount: Units
    worker: Address | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A skipped row `index` of a batch of vouchers (`reason` is the error's name) or of an early close's releases."""

    job: int
    worker: Address
    index: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a case ended: `name` of the event (Slashed, Acquitted, Dismissed), and its block."""

    name: str
    block: int


@dataclass(frozen=True, slots=True)
class VestBurn:
    """Locked pay that a ruling burnt, in units; `event` is that of its case."""

    case: Hash
    event: Hash
    units: Units


@dataclass(frozen=True, slots=True)
class Accused:
    case: Hash
    job: int
    amount: Amount
    event: Hash
