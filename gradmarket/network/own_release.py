"""This release, as it is told to the other side of a request."""

from functools import cache
from importlib.metadata import version

from gradmarket.market import release


@cache
def own_version() -> str:
    return version("gradmarket")


@cache
def own_header() -> tuple[str, str]:
    """Returns the name and the value that go with each request of a worker and each answer of a service."""
    return release.HEADER, release.write_header(own_version())


def check_release(header: str | None, whose: str, ours: str) -> None:
    """Raises OtherRelease where the other side's header names another protocol; `whose` and `ours` name the sides."""
    release.check_release(header, whose, ours, own_version())
