"""What stands between a worker's answer and the merge: nothing but the aggregator, or votes and audits before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from gradmarket.market.gradient.aggregators import Aggregator, aggregator
from gradmarket.market.rules import voting
from gradmarket.market.rules.replication import Plan, policy
from gradmarket.market.rules.verifiers import exact
from gradmarket.market.terms import Digest, ReplicaId

Audits = Callable[[Random], bool]
"""Whether an accepted task is run again by somebody trusted; the draw is given its randomness."""


def none(_random: Random) -> bool:
    return False


def a_tenth(random: Random) -> bool:
    """The rate of an `audited` job that asks for one in ten."""
    return random.random() < 0.1


@dataclass(frozen=True)
class Defence:
    """`plan` None: each task has one worker, and its answer is believed."""

    aggregator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None
    audits: Audits = none

    def rule(self) -> tuple[Aggregator, Any]:
        rule = aggregator(self.aggregator)
        return rule, rule.Settings(**self.settings)


_FIXED = policy("fixed")
VOTES: Final = _FIXED.plan(_FIXED.Settings(replicas=3, max_replicas=5))
DEFENCES: Final[Mapping[str, Defence]] = {
    "votes of 3 to 5": Defence("mean", plan=VOTES),
    "votes, median": Defence("median", plan=VOTES),
    "votes, audits 10 %": Defence("mean", plan=VOTES, audits=a_tenth),
    "votes, audits, median": Defence("median", plan=VOTES, audits=a_tenth),
    "mean": Defence("mean"),
    "trimmed mean": Defence("trimmed_mean", {"trim": 7}),
    "median": Defence("median", {"hostile": 7}),
    "Krum": Defence("krum", {"hostile": 6}),
    "geometric median": Defence("geometric_median", {"hostile": 7}),
    "CenteredClip": Defence("centered_clip"),
}


@dataclass
class Crew:
    """The workers of a run; `hostile` of them act as one, and who is caught is out."""

    workers: int
    hostile: int
    random: Random
    caught: set[int] = field(default_factory=set)

    def is_hostile(self, worker: int) -> bool:
        return worker >= self.workers - self.hostile

    def present(self) -> list[int]:
        return [worker for worker in range(self.workers) if worker not in self.caught]


def believed(crew: Crew, task: int) -> bool:
    """Without votes: whether task `task` falls to an honest worker; there are as many tasks as workers."""
    return not crew.is_hostile(task % crew.workers)


def voted(crew: Crew, defence: Defence, plan: Plan, quiet: bool) -> bool | None:
    """Which answer one task comes to, by the rules of the vote: the honest one, the colluders', or none.

    Colluders give one answer, so that they agree; `quiet` ones give it only where it wins at once. An audit that finds
    it takes it out of the round and its workers out of the run.
    """
    present = crew.present()
    asked = crew.random.sample(present, min(plan.maximum, len(present)))
    size = plan.first_wave
    colluders = sum(crew.is_hostile(worker) for worker in asked[:size])
    cheats = not quiet or plan.decides(size, colluders)
    while True:
        wave = asked[:size]
        ballots = {_replica(worker): _ballot(cheats and crew.is_hostile(worker)) for worker in wave}
        judged = voting.judge(exact.groups(ballots), len(wave), plan)
        if isinstance(judged, voting.Another) and size < len(asked):
            size = min(size + judged.wave, len(asked))
        else:
            return _outcome(crew, defence, judged, ballots)


def _outcome(
    crew: Crew, defence: Defence, judged: voting.Judgement, ballots: Mapping[ReplicaId, Digest]
) -> bool | None:
    if not isinstance(judged, voting.Quorum):
        return None
    honest = all(ballots[replica] == HONEST for replica in judged.agreeing)
    if defence.audits(crew.random) and not honest:
        crew.caught |= {int(replica) for replica in judged.agreeing}
        return None
    return honest


HONEST: Final = Digest("blake3:" + "0" * 64)
_FALSE: Final = Digest("blake3:" + "f" * 64)


def _replica(worker: int) -> ReplicaId:
    return ReplicaId(str(worker))


def _ballot(false: bool) -> Digest:
    return _FALSE if false else HONEST
