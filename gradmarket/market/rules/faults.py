"""Describes what kept workers from computing a task, and decides when that is the job's fault.

A claim costs nothing to make, so the claim of a single party counts for nothing: it returns its lease, and another
worker gets it. A failure is the job's own where nobody has committed to the attempt and separate parties claim the same
failure at the same place: as many as a quorum, and at least two. Where a quorum is of several, claims of that many
parties whose work was accepted before suffice; else claims count only where no such party is left that could get the
task, and where all available newcomers, or MANY quorums of them, claim it. Where one replica decides, each claimant had
the task to itself, so that any number of them may be one owner's: claims count only where nobody is left at all. A
party whose claim was disproved by another's accepted answer is not counted again in the job.

Who may get a second lease of one attempt: workers whose machine failed, where nobody else is left.

A task whose replicas are all that it may have, and a market with no other worker, would else wait for nobody. Whoever
gave its lease back by choice gets none: it could choose with whom it shares a task. A failure that is claimed may be
such a choice too, so it costs a strike as before, and two leases of an attempt are the most.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gradmarket.market.printable import replace_controls
from gradmarket.market.rules.assignment import Party, is_same_party
from gradmarket.market.terms import Address, ReplicaState
from gradmarket.market.wire.step_fault import FaultKind, StepFault

LEAST: Final = 2
MANY: Final = 8


def shorten_printable(text: str, most: int) -> str:
    """Returns the text as one printable line of at most `most` characters, without control or direction characters."""
    return replace_controls(text, " ")[:most].strip()


@dataclass(frozen=True, slots=True)
class FaultClaim:
    """One party's claim. `known`: work of this party was accepted before."""

    party: Party
    place: tuple[str, ...]
    known: bool


@dataclass(frozen=True, slots=True)
class Left:
    """How many workers could still get the task: those whose work was accepted before, and newcomers."""

    known: int
    newcomers: int


NOBODY: Final = Left(0, 0)


def find_shared_claims(
    claims: Sequence[FaultClaim], quorum: int, separation: Sequence[str], left: Left
) -> list[FaultClaim]:
    """Returns the claims that make a failure the job's fault; none where it is not."""
    least = max(LEAST, quorum)
    for place in sorted({claim.place for claim in claims}):
        alike = [claim for claim in claims if claim.place == place]
        everybody = count_separate_parties([claim.party for claim in alike], separation)
        known = count_separate_parties([claim.party for claim in alike if claim.known], separation)
        many = quorum >= LEAST and everybody >= MANY * least
        exhausted = not left.known and (not left.newcomers or many)
        if (known >= quorum >= LEAST) or (everybody >= least and exhausted):
            return alike
    return []


def count_separate_parties(parties: Sequence[Party], separation: Sequence[str]) -> int:
    """Returns how many separate parties there are."""
    counted: list[Party] = []
    for party in parties:
        if not any(is_same_party(party, other, separation) for other in counted):
            counted.append(party)
    return len(counted)


_FAILED: Final = {
    FaultKind.STEP_FAILED: "the step fails",
    FaultKind.DATA_REFUSED: "the data is not what its manifest declares",
    FaultKind.LINK_FAILED: "the data's link does not serve it",
    FaultKind.OUT_OF_MEMORY: "the step finds too little memory",
    FaultKind.TIMED_OUT: "the step takes longer than workers allow",
    FaultKind.CRASHED: "the step ends the process that computes it",
    FaultKind.REFUSED: "what was published is unfit",
}
_DATA: Final = "mend the data, pack it anew and post the job again"
_SMALLER: Final = "post the job again with a smaller step.microbatch"
_REMEDIES: Final = {
    FaultKind.STEP_FAILED: "mend the data or the document and post the job again",
    FaultKind.DATA_REFUSED: _DATA,
    FaultKind.LINK_FAILED: "make the link serve it, then resume the job",
    FaultKind.OUT_OF_MEMORY: _SMALLER,
    FaultKind.TIMED_OUT: _SMALLER,
    FaultKind.CRASHED: "post the job again without that step",
    FaultKind.REFUSED: "mend it and post the job again",
}


def describe_fault(fault: StepFault) -> str:
    """Returns in words what failed and where."""
    row = "" if fault.row is None else f"row {fault.row}"
    partition, input_name = (
        f"{what} {name}" if name else "" for what, name in (("partition", fault.partition), ("input", fault.input))
    )
    where = ", ".join(part for part in (fault.node, partition, input_name, row) if part)
    message = f": {fault.message}" if fault.message else ""
    return f"{_FAILED[fault.kind]}{' at ' if where else ''}{where}{message}"


def describe_pause(fault: StepFault, parties: int, task: int, round_number: int) -> str:
    """Returns why a job pauses, and what to do about it."""
    who = f"{parties} separate workers could not compute task {task} of round {round_number}"
    return f"{who}: {describe_fault(fault).rstrip('.')}. None of them is to blame: {_REMEDIES[fault.kind]}"


MOST: Final = 2
"""Leases of one attempt that a worker may have."""
OF_THE_JOB: Final = frozenset({FaultKind.STEP_FAILED, FaultKind.DATA_REFUSED, FaultKind.REFUSED})
"""Failures that the same worker would only meet again."""
UNANSWERED: Final = frozenset(
    {ReplicaState.EXPIRED, ReplicaState.ERROR, ReplicaState.TOO_LATE, ReplicaState.NOT_NEEDED}
)
"""Ends of a lease without a commitment that are not the worker's choice."""


def find_returners(replicas: Sequence[tuple[Address, ReplicaState, StepFault | None]]) -> frozenset[Address]:
    """Returns the workers of an attempt's replicas that may have a lease of it once more."""
    leases = Counter(worker for worker, _state, _fault in replicas)
    barred = {worker for worker, state, fault in replicas if not _may_return(state, fault)}
    return frozenset(worker for worker, count in leases.items() if count < MOST and worker not in barred)


def _may_return(state: ReplicaState, fault: StepFault | None) -> bool:
    return state in UNANSWERED and (fault is None or fault.kind not in OF_THE_JOB)
