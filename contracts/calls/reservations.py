"""Calls to reserve money for single workers and to release it (IReservations)."""

from collections.abc import Sequence

from contracts.calls.encoding import Call, to_market
from contracts.packing import pack_reservations
from gradmarket.market.messages import Release
from gradmarket.market.terms import Address, Units


def reserve(market: Address, job: int, rows: Sequence[tuple[Address, Units]]) -> Call:
    """Adds each row's units to that worker's reservation."""
    return to_market(market, "reserve", job, pack_reservations(rows))


def release(market: Address, job: int, reserved: Units) -> Call:
    """Lowers the sender's own reservation to `reserved`, but never below what is credited to it."""
    return to_market(market, "release", job, reserved)


def release_for(market: Address, message: Release, signature: bytes) -> Call:
    """Does the same by the worker's signature; sent by anyone."""
    return to_market(market, "releaseFor", message.job, message.worker, message.reserved, message.nonce, signature)


def close_job(market: Address, job: int, releases: Sequence[tuple[Release, bytes]]) -> Call:
    """Closes the job early: applies the workers' signed releases and refunds everything that is free then.

    Skips releases that are invalid or of another job. No deposit or reservation is possible afterwards.
    """
    rows = [(message.worker, message.reserved, message.nonce, signature) for message, signature in releases]
    return to_market(market, "closeJob", job, rows)
