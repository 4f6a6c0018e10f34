"""The state of a simulated market: operators, their workers, and the open tasks and replicas."""

from collections import deque
from dataclasses import dataclass, field

from gradmarket.market.features.reputation import NEWCOMER, TrustRecord
from gradmarket.market.rules.assignment import Candidate
from gradmarket.market.terms import Address, Hash, Plan, ReplicaId
from gradmarket.simulation.strategies import Strategy


@dataclass(slots=True)
class SimulatedOperator:
    """The market's record of one identity."""

    stake: float
    """The operator's stake, in prices."""
    window: "deque[SimulatedTask]"
    """Accepted tasks that are not final."""
    record: TrustRecord = NEWCOMER
    pending: int = 0
    """Tasks leased, or accepted and neither audited nor spared by the draw."""
    valid_in_a_row: int = 0
    """Used by BOINC's rule."""
    barred: bool = False


@dataclass(slots=True)
class SimulatedWorker:
    """`pace`: seconds per task; `leaves_at`: when it leaves forever."""

    address: Address
    kind: str
    strategy: Strategy
    operator: SimulatedOperator
    candidate: Candidate
    pace: float
    leaves_at: float
    strikes: int = 0


@dataclass(slots=True)
class SimulatedReplica:
    """`answer` is None until it commits; `open` while a commitment may still come."""

    worker: SimulatedWorker
    answer: str | None = None
    open: bool = True


@dataclass(slots=True)
class SimulatedTask:
    offer: Hash
    plan: Plan
    wanted: int
    """Replicas that the waves so far need."""
    replicas: dict[ReplicaId, SimulatedReplica] = field(default_factory=dict)
    audited: bool = False
    wrong: bool = False
    agreeing: tuple[SimulatedWorker, ...] = ()

    @property
    def answering(self) -> int:
        """Returns the number of replicas that committed or still may."""
        return sum(replica.open or replica.answer is not None for replica in self.replicas.values())
