"""Decides when workers' failures are the job's own fault.

A claim costs nothing to make, so the claim of a single party counts for nothing: it returns its lease, and another
worker gets it. A failure is the job's own where nobody has committed to the attempt and separate parties claim the same
failure at the same place: as many as a quorum, and at least two. Where a quorum is of several, claims of that many
parties whose work was accepted before suffice; else claims count only where no such party is left that could get the
task, and where all available newcomers, or MANY quorums of them, claim it. Where one replica decides, each claimant had
the task to itself, so that any number of them may be one owner's: claims count only where nobody is left at all. A
party whose claim was disproved by another's accepted answer is not counted again in the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gradmarket.market.rules.assignment import Party, is_same_party
from gradmarket.market.rules.faults import describe_fault
from gradmarket.market.wire.poll import FaultKind, StepFault

LEAST: Final = 2
MANY: Final = 8


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


_DATA: Final = "correct the data, pack it again and post the job again"
_SMALLER: Final = "post the job again with a smaller step.microbatch"
_REMEDIES: Final = {
    FaultKind.STEP_FAILED: "correct the data or the document and post the job again",
    FaultKind.DATA_REFUSED: _DATA,
    FaultKind.LINK_FAILED: "make the link serve it, then resume the job",
    FaultKind.OUT_OF_MEMORY: _SMALLER,
    FaultKind.TIMED_OUT: _SMALLER,
    FaultKind.CRASHED: "post the job again without that step",
    FaultKind.REFUSED: "correct it and post the job again",
}


def describe_pause(fault: StepFault, parties: int, task: int, round_number: int) -> str:
    """Returns why a job pauses, and the remedy."""
    who = f"{parties} separate workers could not compute task {task} of round {round_number}"
    return f"{who}: {describe_fault(fault).rstrip('.')}. None of them is to blame: {_REMEDIES[fault.kind]}"
