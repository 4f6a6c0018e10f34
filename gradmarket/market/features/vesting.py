"""The part of a worker's pay that is locked at a time, and the time at which a requester accuses it of a fault that an
audit proved.

Of a worker's unpaid credit on the chain, the last `vest` units are locked until `window_s` seconds after the credit
last grew (the contract's IVesting). With E prices locked and lies found with the probability p, a lie costs p E prices.
An accusation counts once for an event: it waits for the whole vest while the lock leaves time for it.
"""

from dataclasses import dataclass
from typing import Final

from gradmarket.market.job_fields import JobFields
from gradmarket.market.terms import Units

NOTHING: Final = Units(0)


def find_vesting_fault(spec: JobFields) -> str:
    """Returns why the job's pay cannot vest, the field first; empty where it can, or asks for none of it."""
    if spec.vesting is None or spec.stake is None:
        return ""
    return "vesting: the contract has one bond for accusations of stakes and of pay: leave out stake, or this"


@dataclass(frozen=True, slots=True)
class PayLock:
    """A worker's pay in a job that vests: `unpaid` of it is not paid, credited last at `credited_at` (Unix seconds)."""

    unpaid: Units
    credited_at: int
    vest: Units
    window_s: int

    @property
    def until(self) -> int:
        """The last second of the lock."""
        return self.credited_at + self.window_s

    def compute_locked(self, now: float) -> Units:
        """Returns the units locked by time; accused units stay locked beyond it."""
        return min(self.vest, self.unpaid) if now <= self.until else NOTHING

    def choose_accused(self, accused: Units, now: float) -> Units:
        """Returns the units to accuse now; none while more may still be credited and there is time for it.

        `accused` are units of open cases.
        """
        locked = self.compute_locked(now)
        full = locked == self.vest
        late = now > self.credited_at + self.window_s // 2
        return Units(max(0, locked - accused)) if full or late else NOTHING
