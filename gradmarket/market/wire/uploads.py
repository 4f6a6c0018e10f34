"""What a market answers about a payload that is uploaded in pieces or parts: what it has, and where the rest goes."""

from pydantic import Field

from gradmarket.market.wire.base import Wire


class ReceivedBytes(Wire):
    """How much of a replica's payload the market has of an upload that broke off: go on from there."""

    received: int = Field(ge=0, lt=2**63)


class PartAddress(Wire):
    """An address that takes `length` bytes of a payload, those from `start` on, by a plain PUT."""

    start: int = Field(ge=0, lt=2**63)
    length: int = Field(ge=1, lt=2**63)
    address: str = Field(max_length=8192)


class MissingParts(Wire):
    """Some of the parts that have not come; none once all have: then say in a poll that the payload is there."""

    parts: tuple[PartAddress, ...] = Field(default=(), max_length=64)
