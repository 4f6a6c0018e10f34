"""The plan for checking one task: a policy of rules.replication makes it, and the market publishes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for checking one task."""

    first_wave: int
    """The number of workers in the first wave, the lead included."""
    quorum: int
    """Agreeing ballots that decide, if they are also more than half of all committed."""
    maximum: int
    """The most commitments: no worker is added beyond them."""
    audit: float = 0.0
    """The probability that the task is audited once it is accepted."""
    referred: bool = False
    """Whether an audit settles undecided ballots. An audit that is certain then precedes the acceptance."""

    def decides(self, committed: int, best: int) -> bool:
        """Returns whether `best` agreeing ballots of `committed` replicas are a quorum."""
        return best >= self.quorum and 2 * best > committed

    def next_wave(self, committed: int, best: int) -> int:
        """Returns the fewest further workers with whom the largest group could win, or 0 where it cannot."""
        further = range(1, self.maximum - committed + 1)
        return next((more for more in further if self.decides(committed + more, best + more)), 0)
