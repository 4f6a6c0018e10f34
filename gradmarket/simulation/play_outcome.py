"""The results of a simulation."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Tally:
    """The counts of one strategy's workers. Gains and losses are in prices."""

    workers: int = 0
    replicas: int = 0
    """Leases given to its workers."""
    paid: int = 0
    lies: int = 0
    lies_accepted: int = 0
    lies_caught: int = 0
    """Accepted lies that an audit found."""
    quorums_held: int = 0
    """Votes in which its ring had the quorum of the first wave."""
    stake_lost: float = 0.0

    @property
    def gain(self) -> float:
        """Returns the gain over honest work: pay for uncomputed answers (kept even when found), less lost stakes."""
        return self.lies_accepted - self.stake_lost


@dataclass(slots=True)
class PlayOutcome:
    tasks: int = 0
    """Accepted tasks."""
    votes: int = 0
    """Accepted tasks with more than one replica in the first wave."""
    revoked: int = 0
    undecided: int = 0
    computations: int = 0
    """Replicas leased, whether or not they were computed."""
    audits: int = 0
    reopened: int = 0
    """Audits of other tasks after an operator failed one."""
    seconds: float = 0.0
    kinds: dict[str, Tally] = field(default_factory=dict)
    seats: Counter[str] = field(default_factory=Counter)
    """Replicas in votes, by strategy."""

    @property
    def lies(self) -> int:
        return sum(tally.lies for tally in self.kinds.values())

    @property
    def never_caught(self) -> int:
        """Returns the number of wrong gradients in the model at the end."""
        return sum(tally.lies_accepted - tally.lies_caught for tally in self.kinds.values())

    @property
    def cost(self) -> float:
        """Returns the computations per gradient that stays accepted: 1 is plain training."""
        kept = self.tasks - self.revoked
        return (self.computations + self.audits + self.reopened) / kept if kept else float("inf")

    def as_json(self) -> dict[str, Any]:
        own = {"cost": self.cost, "lies": self.lies, "never_caught": self.never_caught}
        gains = {name: {"gain": tally.gain} for name, tally in self.kinds.items()}
        fields = asdict(self)
        fields["kinds"] = {name: fields["kinds"][name] | gains[name] for name in sorted(gains)}
        return fields | own | {"seats": dict(sorted(self.seats.items()))}
