"""A transaction's fees, its signed bytes, its receipt, and its outcome."""

from dataclasses import dataclass

from web3.types import TxReceipt

from gradmarket.market.terms import Address


@dataclass(frozen=True, slots=True)
class Fees:
    """Wei per gas: `most` is the maximum paid, `tip` the part of it for the block's builder.

    `legacy`: for a chain without a base fee, where both are the price.
    """

    most: int
    tip: int
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class Signed:
    raw: bytes
    hash: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """`cost` is gas times its price, in wei; `created` is a new contract's address; `raw` is web3's receipt."""

    hash: str
    block: int
    gas: int
    cost: int
    created: Address | None
    raw: TxReceipt


@dataclass(frozen=True, slots=True)
class Mined:
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Reverted:
    """`name` is the contract's error, or empty if the node cannot reproduce it."""

    name: str
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Unknown:
    hash: str


Outcome = Mined | Reverted | Unknown
