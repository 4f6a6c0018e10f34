"""Defences between a worker's answer and the merge: the aggregator alone, or votes and audits before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from gradmarket.market.gradient.aggregators import AggregatorRule, load_aggregator
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import voting
from gradmarket.market.rules.overlap import ROUNDS_BEHIND
from gradmarket.market.rules.replication import BEST
from gradmarket.market.rules.verifiers import exact
from gradmarket.market.terms import Digest, Plan, ReplicaId


@dataclass(frozen=True)
class Defence:
    """`plan` None: each task has one worker, and its answer is believed, however long."""

    aggregator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None
    replays: bool = False
    """Whether a failed audit takes back merged rounds (trust.replay)."""
    final_after: int = ROUNDS_BEHIND
    """The rounds that it may still take back."""
    norm_bound: float = 10.0

    def rule(self) -> tuple[AggregatorRule, Any]:
        rule = load_aggregator(self.aggregator)
        return rule, rule.Settings(**self.settings)


TRUST: Final = {
    "replication": {"name": "fixed", "replicas": 3, "max_replicas": 5},
    "audit": {"probability": 0.5, "on_failure": "replay"},
    "norm_bound": 10.0,
    "aggregator": {"name": "mean"},
}
"""Settings of a job that has to bear these attacks (docs/results/attacks.md)."""
_JOB: Final = {
    "name": "trust",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 16},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 30,
    "tasks_per_round": 16,
    "price": "1000000000",
}
TRUSTED: Final = JobSpec.model_validate(_JOB | TRUST)
DEFAULT: Final = JobSpec.model_validate(_JOB)
"""A job of as many rounds that names no trust; everybody is proven at the start, the colluders too."""
OWN: Final = "default"
"""A job that names none of these fields."""
AUDITED: Final = "audits of 50 %"
OPEN: Final = 20
"""Rounds that a job may have open which is to bear patient colluders."""
_AUDITED: Final = TRUSTED.plan()
_SELDOM: Final = replace(_AUDITED, audit=0.1)
VOTES: Final = replace(_AUDITED, audit=0.0)
DEFENCES: Final[Mapping[str, Defence]] = {
    AUDITED: Defence("mean", plan=_AUDITED, replays=True),
    OWN: Defence("mean", {}, DEFAULT.plan(BEST), True, DEFAULT.final_after, DEFAULT.norm_bound),
    "audits of 10 %": Defence("mean", plan=_SELDOM, replays=True),
    "audits of 10 %, median": Defence("median", plan=_SELDOM, replays=True),
    "votes of 3 to 5": Defence("mean", plan=VOTES),
    "votes, median": Defence("median", plan=VOTES),
    "mean": Defence("mean"),
    "trimmed mean": Defence("trimmed_mean", {"trim": 7}),
    "median": Defence("median", {"hostile": 7}),
    "Krum": Defence("krum", {"hostile": 6}),
    "geometric median": Defence("geometric_median", {"hostile": 7}),
    "CenteredClip": Defence("centered_clip"),
}


BESIDE: Final[Mapping[str, Defence]] = {
    AUDITED: DEFENCES[AUDITED],
    f"{AUDITED}, {OPEN} rounds": Defence("mean", plan=_AUDITED, replays=True, final_after=OPEN),
    "proven, 2 rounds": Defence("mean", plan=DEFAULT.plan(BEST), replays=True),
    "proven": Defence("mean", plan=DEFAULT.plan(BEST), replays=True, final_after=DEFAULT.final_after),
    OWN: DEFENCES[OWN],
}
"""Defences that patient and late colluders are played against."""
AIMED: Final = frozenset({f"{AUDITED}, {OPEN} rounds", "proven", OWN})
"""Those that a job is to have against them."""


@dataclass
class Crew:
    """The workers of a run; `hostile` of them act as one, and a caught one is out."""

    workers: int
    hostile: int
    random: Random
    caught: set[int] = field(default_factory=set)

    def is_hostile(self, worker: int) -> bool:
        return worker >= self.workers - self.hostile

    def present(self) -> list[int]:
        return [worker for worker in range(self.workers) if worker not in self.caught]

    def at_large(self) -> int:
        """How many of the hostile are not caught."""
        return sum(map(self.is_hostile, self.present()))


def believed(shared: Crew, task: int) -> bool:
    """Without votes: whether task `task` falls to an honest worker; there are as many tasks as workers."""
    return not shared.is_hostile(task % shared.workers)


@dataclass(frozen=True)
class Decided:
    """A quorum's answer to one task."""

    agreeing: frozenset[int]
    honest: bool


def agreed(shared: Crew, plan: Plan, asked: Sequence[int], quiet: bool) -> Decided | None:
    """Returns the result of one task by the rules of the vote; `asked`: in the order in which they are drawn.

    Colluders give one answer, so that they agree; `quiet` ones give it only where it wins at once.
    """
    size = min(plan.first_wave, len(asked))
    colluders = sum(shared.is_hostile(worker) for worker in asked[:size])
    cheats = not quiet or plan.decides(size, colluders)
    while True:
        wave = asked[:size]
        ballots = {_replica(worker): _ballot(cheats and shared.is_hostile(worker)) for worker in wave}
        judged = voting.judge_ballots(exact.groups(ballots), len(wave), plan)
        if isinstance(judged, voting.Another) and size < len(asked):
            size = min(size + judged.wave, len(asked))
        elif isinstance(judged, voting.Quorum):
            honest = all(ballots[replica] == HONEST for replica in judged.agreeing)
            return Decided(frozenset(map(int, judged.agreeing)), honest)
        else:
            return None


def voted(shared: Crew, plan: Plan, quiet: bool) -> bool | None:
    """Which answer one task comes to: the honest one, the colluders', or none."""
    decided = agreed(shared, plan, shared.random.sample(shared.present(), plan.maximum), quiet)
    return None if decided is None else decided.honest


HONEST: Final = Digest("blake3:" + "0" * 64)
_FALSE: Final = Digest("blake3:" + "f" * 64)


def _replica(worker: int) -> ReplicaId:
    return ReplicaId(str(worker))


def _ballot(false: bool) -> Digest:
    return _FALSE if false else HONEST
