"""Decides the first parameters of a round's tasks, when a round opens and merges, and the rounds that survive a rewind.

With an overlap of s, a round's tasks start from the parameters after round t - 1 - s, while round t changes the
parameters after round t - 1:

    w[t + 1] = w[t] + update(gradients of round t at w[t - s])        (w[k] = w[0] for k < 0)

With s = 1 this is a delay of one step, as in Langford, Smola and Zinkevich, "Slow Learners are Fast" (NIPS 2009), and
for local steps the delayed outer update of Kale, Douillard and Donchev, "Eager Updates for Overlapped Communication and
Computation in DiLoCo" (arXiv 2502.12996). A task's first parameters depend on its round's number alone, and on no
clock: so it can be computed again, audited and replayed.
"""

from typing import Final

BEFORE: Final = -1
"""The number that stands for the state before the first round."""
ROUNDS_BEHIND: Final = 2
"""A round opens once the audits of all rounds up to this many before it are over: the state before a round that they
may undo is still stored.

An overlap adds its own length. A job may have more rounds stored (`audit.final_after`), up to MOST_OPEN.
"""
MOST_OPEN: Final = 64


def starts_after(number: int, overlap: int) -> int:
    """Returns the round after which a round's tasks start; BEFORE: from the job's first parameters."""
    return max(BEFORE, number - 1 - overlap)


def may_open(number: int, closed: int, overlap: int, rounds: int) -> bool:
    """Returns whether a round may open. `closed` is the newest merged round, BEFORE where there is none."""
    return number < rounds and starts_after(number, overlap) <= closed


def may_merge(number: int, closed: int) -> bool:
    """Returns whether a round whose tasks are accepted may be merged: rounds are merged in order."""
    return number == closed + 1


def last_unharmed(revoked: int, overlap: int) -> int:
    """Returns the newest round whose tasks do not depend on the merge of round `revoked`.

    Where that round is taken back, the accepted tasks of later rounds up to this one stand, and are merged again.
    """
    return revoked + overlap
