"""The S3 server that the session's tests share, and a bucket for each of them."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.bucket import KEYS, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return count()


@pytest.fixture
def bucket(numbers: Iterator[int], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return f"bucket-{next(numbers)}"
