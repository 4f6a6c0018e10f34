"""What is set aside for single workers, and how it comes free (IReservations)."""

from collections.abc import Sequence

from gradmarket.contracts.calls.encoding import Call, to_market
from gradmarket.contracts.packing import pack_reservations
from gradmarket.market.messages import Release
from gradmarket.market.terms import Address, Units


def reserve(market: Address, job: int, rows: Sequence[tuple[Address, Units]]) -> Call:
    """Adds each row's units to that worker's reservation."""
    return to_market(market, "reserve", job, pack_reservations(rows))


def release(market: Address, job: int, reserved: Units) -> Call:
    """Lowers the sender's own reservation to `reserved`, never below what it is credited with."""
    return to_market(market, "release", job, reserved)


def release_for(market: Address, message: Release, signature: bytes) -> Call:
    """The same by the worker's signature, whoever sends it."""
    return to_market(market, "releaseFor", message.job, message.worker, message.reserved, message.nonce, signature)


def close_job(market: Address, job: int, releases: Sequence[tuple[Release, bytes]]) -> Call:
    """The early close: applies the workers' signed releases and takes out all that is then free.

    A release that is not good, or of another job, is skipped. No deposit or reservation follows.
    """
    rows = [(message.worker, message.reserved, message.nonce, signature) for message, signature in releases]
    return to_market(market, "closeJob", job, rows)
