"""A job that its service calls running for ever: an audit says what should have come by now."""

from datetime import UTC, datetime

import pytest

from gradmarket.market.job_parts import Deadlines
from gradmarket.market.terms import Digest, JobState, RoundState
from gradmarket.market.wire.evidence import PublishedRound
from gradmarket.public_audit.job_records import UnendedJob, describe_overdue

OPENED = 1_000_000
ENDS = 2_000_000
DIGEST = Digest("blake3:" + "0" * 64)


def round_of(number: int, opened_at: int, updated: Digest | None = None) -> PublishedRound:
    state = RoundState.OPEN if updated is None else RoundState.CLOSED
    at = datetime.fromtimestamp(opened_at, UTC)
    return PublishedRound(number=number, state=state, parameters=DIGEST, updated=updated, opened_at=at)


@pytest.mark.parametrize(
    ("now", "state", "words"),
    [
        (OPENED + 210, JobState.RUNNING, ""),
        (OPENED + 211, JobState.RUNNING, "its round 1 stands for 211 s, and workers have 210 s for an attempt"),
        (OPENED + 211, JobState.PAUSED, ""),
        (ENDS, JobState.PAUSED, ""),
        (ENDS + 1, JobState.PAUSED, "its service withholds the end"),
    ],
    ids=["in time", "a round that stands", "a pause", "the last second of claims", "claims that ended"],
)
def test_an_audit_says_what_an_unended_job_owes(now: int, state: JobState, words: str) -> None:
    rounds = [round_of(1, OPENED), round_of(0, OPENED - 900, DIGEST)]
    said = describe_overdue(UnendedJob(state, Deadlines(), ENDS), rounds, now)
    assert words in said
    assert bool(words) == bool(said)


def test_a_job_between_two_rounds_owes_nothing() -> None:
    merged = [round_of(0, OPENED - 900, DIGEST)]
    assert not describe_overdue(UnendedJob(JobState.RUNNING, Deadlines(), ENDS), merged, OPENED + 900)
    assert not describe_overdue(UnendedJob(JobState.RUNNING, Deadlines(), ENDS), [], OPENED + 900)
