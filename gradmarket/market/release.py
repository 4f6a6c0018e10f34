"""Which releases work together: the number of the rules that a service, its workers and its unfinished jobs share."""

from typing import Final

PROTOCOL: Final = 1
"""Raised with each release whose offers, documents, votes or merges another would not read or count alike.

0 is what a release before 0.1.0 says, which says nothing.
"""


def find_release_difference(theirs: int, whose: str, ours: str) -> tuple[str, str] | None:
    """Returns what differs and what to do, where `theirs` is not PROTOCOL; `whose` and `ours` name the two sides."""
    if theirs == PROTOCOL:
        return None
    older, newer = (whose, ours) if theirs < PROTOCOL else (ours, whose)
    said = f"{whose} is of another release (protocol {theirs}, {ours} has {PROTOCOL})"
    return said, f"bring {older} to the release of {newer}"
