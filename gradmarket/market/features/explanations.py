"""Explains why a worker may not take a task, and why a job has too few workers: one text for each reason.

`rules.assignment.why_not` decides; this module adds the difference behind the reason.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gradmarket.market.rules.assignment import (
    THREADS,
    Candidate,
    Mixable,
    Opening,
    Party,
    Reason,
    is_same_party,
    may_mix_classes,
    why_not,
)

NO_CLASS: Final = "it has not named its determinism class"


def in_words(candidate: Candidate, opening: Opening) -> str | None:
    """Returns why the candidate may not take the task, or None."""
    reason = why_not(candidate, opening)
    if reason is Reason.OTHER_CLASS:
        return other_class(candidate.determinism_class, opening.determinism_class) or reason
    if reason is Reason.NOT_SEPARATED:
        shared = next(party for party in opening.parties if is_same_party(candidate.party, party, opening.separation))
        return f"{reason}: {_describe_shared_link(candidate.party, shared)}"
    return None if reason is None else str(reason)


def other_class(own: str, wanted: str) -> str | None:
    """Returns how two classes differ, where they differ in the number of threads or one is unknown; else None."""
    if not own:
        return NO_CLASS
    mine, theirs = THREADS.search(own), THREADS.search(wanted)
    if mine and theirs and THREADS.sub("", own) == THREADS.sub("", wanted):
        return f"it runs {mine[1]} threads, and the job's workers {theirs[1]} (--threads)"
    return None


def describe_shortage(candidates: Sequence[Candidate], opening: Opening, mixable: Mixable) -> str:
    """Returns why the workers online do not make a first wave, the commonest reason first; empty where all would.

    `opening` has the class of most of them; nobody holds a place of it yet.
    """
    if not candidates:
        return "no worker is here"
    counted, reasons = list[Party](), Counter[str]()
    for candidate in candidates:
        party, decided = candidate.party, why_not(candidate, opening)
        why: str | None
        if decided in (None, Reason.NO_RESERVATION, Reason.AT_CAPACITY):
            shared = next((other for other in counted if is_same_party(party, other, opening.separation)), None)
            why = None if shared is None else _describe_shared_link(party, shared)
        elif decided is Reason.OTHER_CLASS and may_mix_classes(
            candidate.determinism_class, opening.determinism_class, mixable
        ):
            why = None
        else:
            why = in_words(candidate, opening)
        if why is None:
            counted.append(party)
        else:
            reasons[why] += 1
    reason_counts = [f"{number} of {len(candidates)}: {reason}" for reason, number in reasons.most_common(3)]
    return "; ".join(reason_counts)


def _describe_shared_link(one: Party, other: Party) -> str:
    if one.payout == other.payout:
        return "it has the payout address of another worker"
    if one.operator == other.operator:
        return "it has the operator of another worker"
    return "it is in the network of another worker"
