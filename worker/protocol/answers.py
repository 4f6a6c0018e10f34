"""Answers of the market as this worker reads them: bounded, parsed, and with a timeout."""

from typing import Any, Final, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from gradmarket.market.job import Publication
from gradmarket.market.terms import JobId, JobState
from gradmarket.worker.problems import MarketProblem

MAX_ANSWER: Final = 16 * 2**20
"""Bytes of one JSON response; a hostile market must not fill the memory."""


Answer = TypeVar("Answer", bound=BaseModel)


class CutOff(Exception):
    """The connection or a proxy closed before the wait that was requested from the market was over."""


class ListedJob(BaseModel):
    """The fields of `GET /v1/jobs/{id}` that a worker reads."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    id: JobId
    name: str = ""
    state: JobState
    reason: str = ""
    publication: Publication | None = None
    chain_job: int | None = None


class JobPage(BaseModel):
    model_config = ConfigDict(extra="ignore")
    items: tuple[ListedJob, ...]
    next: str | None = None


class PublishedPage(BaseModel):
    """One page of any list."""

    model_config = ConfigDict(extra="ignore")
    items: tuple[dict[str, Any], ...]
    next: str | None = None


def timeout(waits: float) -> httpx.Timeout:
    """Returns a timeout for a request that the market may hold for `waits` seconds."""
    return httpx.Timeout(30.0, read=waits + 60.0)


def parsed(kind: type[Answer], item: dict[str, Any]) -> Answer:
    try:
        return kind.model_validate(item)
    except ValidationError as error:
        raise MarketProblem(200, f"an item of a list is something else: {error}") from error


def bounded(response: httpx.Response) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes(65_536):
        body += chunk
        if len(body) > MAX_ANSWER:
            raise MarketProblem(response.status_code, f"an answer of more than {MAX_ANSWER} bytes")
    return bytes(body)
