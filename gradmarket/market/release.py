"""The compatibility of releases: the number of the rules that a service, its workers and its unfinished jobs share.

The service sends it with every answer and a worker with every request, as a header: `gradmarket-release: 1/0.1.0`.
"""

import re
from typing import Final

from gradmarket.market.errors import Refused

PROTOCOL: Final = 1
"""Raised with each release whose offers, documents, votes or merges another would not read or count alike.

0 stands for a release before 0.1.0, which sends no number.
"""
SILENT: Final = 1
"""The newest protocol of releases that send no header and keep no number in their accounts."""
HEADER: Final = "gradmarket-release"
_VALUE: Final = re.compile(r"([0-9]{1,9})/([0-9A-Za-z.+-]{1,32})")


class OtherRelease(Refused):
    """These two do not work together."""


def write_header(version: str) -> str:
    return f"{PROTOCOL}/{version}"


def find_release_difference(
    theirs: int, other: str, ours: str, their_version: str = "", our_version: str = ""
) -> tuple[str, str] | None:
    """Returns the difference and its remedy, where `theirs` is not PROTOCOL; `whose` and `ours` name the two sides."""
    if theirs == PROTOCOL:
        return None
    older, newer, version = (other, ours, our_version) if theirs < PROTOCOL else (ours, other, their_version)
    message = f"{other} is of another release (protocol {theirs}, {ours} has {PROTOCOL})"
    return message, f"bring {older} to the release of {newer}" + (f", gradmarket {version}" if version else "")


def check_release(header: str | None, service: str, ours: str, our_version: str) -> None:
    """Raises OtherRelease where the other side's header names another protocol; a missing header counts as SILENT."""
    found = _VALUE.fullmatch(header or "")
    theirs, version = (int(found[1]), found[2]) if found else (SILENT, "")
    if other := find_release_difference(theirs, service, ours, version, our_version):
        raise OtherRelease(*other)
