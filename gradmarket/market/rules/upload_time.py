"""How long an upload is waited for: as the offer says, and longer where it comes steadily over a slow link.

The time is counted in bytes at the upload's own measured rate. Who sends so slowly that it could not end in time
either way gets no longer, so a place is held no longer than LONGEST allows, and only by who delivers.
"""

from typing import Final

LONGEST: Final = 10
"""Times the offer's upload seconds, from when the payload was asked for."""
SPARE: Final = 1.5
"""Times what the rest needs at the measured rate: rates of links vary."""


def compute_latest_end(asked_at: float, upload_s: float) -> float:
    """Returns when even an upload that gets on is over."""
    return asked_at + LONGEST * upload_s


def asked_at(last: float, upload_s: float) -> float:
    return last - LONGEST * upload_s


def put_off(due: float, last: float, upload_s: float, now: float, left: int, rate: float) -> float:
    """Returns the new deadline of an upload with `left` bytes to come at `rate` bytes a second; `due` where it stays.

    It is put off when less than half of the offer's upload seconds is left, which is seldom: each time costs the market
    a transaction. `last` is the latest there may be.
    """
    if due - now >= upload_s / 2 or rate <= 0:
        return due
    needs = left / rate
    if now + needs > last:
        return due
    return max(due, min(last, now + SPARE * needs + upload_s / 2))
