"""Rows of a holder: the rows that a step draws by chance, and the weight of answers over them (private_faults)."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from blake3 import blake3
from pydantic import Field

from gradmarket.market.wire import JobField, Wire


class Holding(Wire):
    """`rows`: their number, by their owner; null where it names none. The first statement stands."""

    rows: int | None = Field(default=None, ge=1, lt=2**53)


class HoldingReceipt(Wire):
    """The worker may be drawn for the job's tasks. `rows` are its first number: its answers weigh by them."""

    job: JobField
    rows: int | None


KEY: Final = np.dtype("<u8")


def draw_rows_by_chance(seed: bytes, total: int, count: int, room: int) -> list[int]:
    """Returns rows of `total`, each drawn with probability count / total apart from the others, in order.

    Where more than `room` are drawn, all are drawn anew. Probabilities are exact to 2^-64, from below.
    """
    if count >= total:
        return list(range(total))
    limit, attempt, rows = np.uint64(count * 2**64 // total), 0, list[int]()
    while attempt == 0 or len(rows) > room:
        message = b"by chance" + attempt.to_bytes(8, "big") + seed
        keys = np.frombuffer(blake3(message).digest(KEY.itemsize * total), dtype=KEY)
        rows = np.flatnonzero(keys < limit).tolist()
        attempt += 1
    return rows


def count_weighed_rows(rows: int | None, least: int, cap: int) -> int:
    """Returns the rows that weigh a holder's answer: its declared rows up to the cap, or the least without any."""
    return min(max(least, rows or 0), cap)


def compute_pot_weight(rows: Sequence[int], cap: int) -> float:
    """Returns for how many answers of `cap` rows a round pays by worth whose answers weigh as these rows."""
    return sum(rows) / cap


def compute_row_scales(rows: Sequence[int]) -> tuple[float, ...]:
    """Returns the factors that make the plain mean of answers of these rows the mean weighted by rows."""
    total = sum(rows)
    return tuple(len(rows) * count / total for count in rows)
