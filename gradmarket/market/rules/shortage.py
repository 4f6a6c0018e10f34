"""Why a worker gets no lease, in words (market.features.explanations puts a shortage of workers into words)."""

import re
from enum import StrEnum
from typing import Final

THREADS: Final = re.compile(r"/threads-(\d+)$")
"""The end of a determinism class (graphdoc.runner.child)."""


class Idle(StrEnum):
    """Why a worker gets no lease, where nothing stands against it at an open task (assignment.Reason)."""

    NO_JOB = "no job is running"
    HELD_UP = "no job is running; {} paused, {} without their deposit yet"
    NO_TASK = "no task is open just now"
    WAITS = "the job waits"
    """In the words of its own reason."""
    CHAIN = "the chain cannot be used"
    """In the words of the chain's trouble."""
    ASKS_NOTHING = "it asks for no work and holds none: its own log says why"
    QUEUED = "newcomers get seats in turn"
    """With its place."""
    SPENT = "no money is left to reserve for it: the deposit is spent or reserved for others (fund the job)"
    SEATED = "it has its seat in the job, and gets the next one once it has answered"
    NEXT_TURN = "its next seat comes once an honest machine could have computed its last one"
    OPERATOR_SEATED = "another worker of its operator has a seat, and an operator has one"
    NOT_IN_CREW = "other proven workers vote in this round"
    NO_TRIAL = "workers that delivered before suffice, and as many newcomers as the job tries at once have places"
    PROVEN_VOTE = "proven workers alone vote while the auditor is away"
    OTHERS_DRAWN = "others were drawn"
    TOO_FEW = "fewer free workers just now than a task begins with"


def find_thread_count(determinism_class: str) -> int | None:
    """Returns the threads of a class of processors; None of cards, and of no class."""
    found = THREADS.search(determinism_class)
    return int(found[1]) if found else None
