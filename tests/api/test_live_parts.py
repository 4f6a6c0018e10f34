"""A watched page's part: rendered once for all watchers, sent when it changes, until the job is over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from contracts import deployment as deployments
from requester.features.pages.live_parts import PagePart, _Watched
from requester.settings import RequesterSettings
from requester.store.tables import Job
from requester.store.work import record_event
from tests.api.api_service import Service, serving
from tests.api.conftest import JOB
from tests.patience import PATIENCE_S

Posted = Callable[..., dict[str, Any]]
STREAM = {"Accept": "text/event-stream"}
VIEWERS = 12


@contextmanager
def renderings(service: Service) -> Iterator[list[str]]:
    """The statements that only a rendering of a job's part sends, one for each."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM replicas" in statement and "LEFT OUTER JOIN audits" in statement:
            seen.append(statement)

    engine = service.context.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def happened(service: Service, job: str, ended: bool = False) -> None:
    with service.context.begin() as work:
        if ended:
            work.get_one(Job, job).ended_at = service.context.clock()
        record_event(work, job, "paused", service.context.clock(), reason="at noon")


async def parts(response: httpx.Response) -> AsyncIterator[str]:
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            lines.append(line.removeprefix("data: "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []


def test_there_is_no_stream_of_an_unknown_job(service: Service) -> None:
    assert httpx.get(f"{service.url}/page/jobs/{'0' * 16}", headers=STREAM).status_code == 404


def test_many_viewers_take_one_rendering(service: Service, posted: Posted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requester.features.pages.live_parts.LOOK_S", 600.0)  # no time alone renders it anew
    job = posted()["id"]
    heard: list[list[str]] = [[] for _ in range(VIEWERS)]
    first = asyncio.Semaphore(0)

    async def view(http: httpx.AsyncClient, mine: list[str]) -> None:
        async with http.stream("GET", f"/page/jobs/{job}", headers=STREAM) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            async for part in parts(response):
                mine.append(part)
                first.release()

    async def watch() -> None:
        async with httpx.AsyncClient(base_url=service.url, timeout=PATIENCE_S) as http:
            views = [asyncio.create_task(view(http, mine)) for mine in heard]
            for _ in views:
                await first.acquire()
            await asyncio.to_thread(happened, service, job, True)
            await asyncio.gather(*views)  # the service ends each stream

    with renderings(service) as made:
        asyncio.run(watch())
    told = {tuple(mine) for mine in heard}
    assert len(told) == 1, "all see the same"
    (seen,) = told
    assert len(seen) >= 2
    assert 'data-over="1"' in seen[-1]
    assert 'data-over=""' in seen[0]
    assert len(made) <= len(seen) + 1, "what is rendered anew and is the same is not sent"


def test_an_ended_job_is_one_part_and_no_waiting(service: Service, posted: Posted) -> None:
    job = posted()["id"]
    happened(service, job, ended=True)
    with service.anyone.stream("GET", f"/page/jobs/{job}", headers=STREAM) as response:
        assert sum(line == "event: part" for line in response.iter_lines()) == 1


def test_a_job_that_is_not_there_has_no_stream(service: Service) -> None:
    assert service.anyone.get(f"/page/jobs/{'0' * 16}", headers=STREAM).status_code == 404


def test_a_job_s_page_is_html_with_its_series(service: Service, posted: Posted) -> None:
    answer = service.anyone.get(f"/page/jobs/{posted()['id']}")
    assert answer.headers["content-type"].startswith("text/html")
    assert 'id="series"' in answer.text


def test_an_address_holds_so_many_streams_of_either_kind(tmp_path, anvil, deployment) -> None:  # type: ignore[no-untyped-def]
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    few = RequesterSettings(data=tmp_path, rpc=anvil.url, unlimited=frozenset(), address_streams=1, refused_s=0.0)
    with serving(few) as service:
        job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
        with service.client(None).stream("GET", f"/v1/jobs/{job}/events") as held:
            assert held.status_code == 200
            assert service.anyone.get(f"/page/jobs/{job}", headers=STREAM).status_code == 429
            happened(service, job, ended=True)


@pytest.mark.parametrize(("text", "over", "wakes"), [("a", False, False), ("b", False, True), ("a", True, True)])
def test_viewers_are_woken_by_another_part_or_by_the_end(text: str, over: bool, wakes: bool) -> None:
    watched = _Watched()
    watched.publish(PagePart("a", True, False))
    told, number = watched.changed, watched.number
    watched.publish(PagePart(text, True, over))
    assert told.is_set() == wakes
    assert watched.number == number + (text != "a")
