"""The tasks that a round may leave for a later one, and how long uploads over slow links are waited for.

An upload has the offer's time, and longer where it comes steadily over a slow link. The time is counted in
bytes at the upload's own measured rate. A worker that sends too slowly to end in time either way gets no extension, so
a place is held no longer than LONGEST allows, and only by workers that deliver.
"""

from typing import Final


def due_since(number: int, rounds: int, staleness: int) -> int:
    """Returns the last round in which a task may have been issued first for which round `number` has to wait.

    A round leaves a task to the next one at least, to the next `staleness` ones at most; the last leaves none.
    """
    return number if number + 1 >= rounds else number - max(1, staleness)


LONGEST: Final = 10
"""The longest upload, in upload seconds of the offer, from the request for the payload."""
SPARE: Final = 1.5
"""Factor on the time that the rest needs at the measured rate: rates of links vary."""


def compute_latest_end(asked_at: float, upload_s: float) -> float:
    """Returns the latest end of an upload that makes progress."""
    return asked_at + LONGEST * upload_s


def compute_request_time(last: float, upload_s: float) -> float:
    return last - LONGEST * upload_s


def put_off(due: float, last: float, upload_s: float, now: float, left: int, rate: float) -> float:
    """Returns the new deadline of an upload with `left` bytes to come at `rate` bytes a second; `due` where it stays.

    The deadline moves when less than half of the offer's upload seconds is left, which is seldom: each move costs the
    market a transaction. `last` is the latest possible deadline.
    """
    if due - now >= upload_s / 2 or rate <= 0:
        return due
    needs = left / rate
    if now + needs > last:
        return due
    return max(due, min(last, now + SPARE * needs + upload_s / 2))
