"""Streams of events: read once for all followers, without a gap, and in a bounded number."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from fastapi import HTTPException
from sqlalchemy import event

from contracts import deployment as deployments
from requester.features.event_streams.event_tail import AT_ONCE, KEPT, EventTails
from requester.settings import RequesterSettings
from requester.store.tables import Job
from requester.store.work import record_event
from tests.api.api_service import Service, serving

Posted = Callable[..., dict[str, Any]]


def ids(lines: Iterator[str]) -> Iterator[int]:
    yield from (int(line.removeprefix("id:")) for line in lines if line.startswith("id:"))


def record_events(service: Service, job: str, times: int) -> None:
    with service.context.begin() as work:
        for _ in range(times):
            record_event(work, job, "noted", service.context.clock())


def end(service: Service, job: str) -> None:
    with service.context.begin() as work:
        work.get_one(Job, job).ended_at = service.context.clock()
        record_event(work, job, "ended", service.context.clock())


@contextmanager
def looks(service: Service) -> Iterator[list[str]]:
    """The statements that read events meanwhile."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM events" in statement:
            seen.append(statement)

    engine = service.context.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def followed(service: Service, job: str, after: int = 0) -> list[int]:
    with service.anyone.stream("GET", f"/v1/jobs/{job}/events", params={"after": after}) as stream:
        return list(ids(stream.iter_lines()))


def test_a_follower_far_behind_catches_up_and_misses_nothing(service: Service, posted: Posted) -> None:
    job = posted()["id"]
    record_events(service, job, KEPT + AT_ONCE + 7)
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(followed, service, job) for _ in range(3)]
        for _ in range(20):
            record_events(service, job, 13)
        end(service, job)
        found = [stream.result(60) for stream in streams]
    assert found[0] == found[1] == found[2]
    assert found[0] == sorted(set(found[0]))
    assert len(found[0]) == 1 + KEPT + AT_ONCE + 7 + 20 * 13 + 1
    assert followed(service, job, after=found[0][-3]) == found[0][-2:]


def test_a_crowd_costs_one_look(service: Service, posted: Posted) -> None:
    job, crowd, rings = posted()["id"], 30, 5
    with ExitStack() as stack, ThreadPoolExecutor(crowd) as pool:
        streams = []
        for _ in range(crowd):
            opened = stack.enter_context(service.client(None).stream("GET", f"/v1/jobs/{job}/events"))
            streams.append(ids(opened.iter_lines()))
        assert len({next(stream) for stream in streams}) == 1
        with looks(service) as seen:
            for _ in range(rings):
                record_events(service, job, 1)
                assert len(set(pool.map(next, streams))) == 1
        assert len(seen) <= 3 * rings, "and not one for each of thirty"
        end(service, job)


def test_an_address_has_so_many_streams_and_no_more(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    few = RequesterSettings(data=tmp_path, rpc=anvil.url, unlimited=frozenset(), address_streams=2, refused_s=0.0)
    with serving(few) as service:
        job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
        place = f"/v1/jobs/{job}/events"
        with ExitStack() as stack:
            for _ in range(2):
                assert stack.enter_context(service.client(None).stream("GET", place)).status_code == 200
            refused = service.anyone.get(place)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 0
            assert "2 streams" in refused.json()["detail"]
            with service.requester.stream("GET", place) as watched:
                assert watched.status_code == 200, "the requester watches its own job"
            end(service, job)
        assert followed(service, job)


JOB = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 1,
    "replication": {"name": "fixed"},
    "price": "1000000000",
}


def test_all_together_have_so_many_places(service: Service) -> None:
    class Few:
        settings = RequesterSettings(streams=3, address_streams=2)

    following = EventTails(Few())  # type: ignore[arg-type]
    with ExitStack() as stack:
        for source in ("a", "a", "b"):
            stack.enter_context(following.place(source))
        with pytest.raises(HTTPException) as of_one, following.place("a"):
            pass
        with pytest.raises(HTTPException) as of_all, following.place("c"):
            pass
        assert (of_one.value.status_code, of_all.value.status_code) == (429, 503)
        with following.place(None):
            pass
    with following.place("c"):
        pass
